"""The files for deployment: each tool that would read them accepts them, and their commands exist."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.docs.pages import HOME, Page
from tests.support.shell import corral

DEPLOY = HOME / "deploy"
LINTERS = [
    ("hadolint", "deploy/Dockerfile"),
    ("check-jsonschema", "--builtin-schema", "vendor.compose-spec", "deploy/compose.yaml"),
    ("kubernetes-validate", "--strict", "deploy/kubernetes.yaml"),
    ("check-jsonschema", "--builtin-schema", "vendor.github-workflows", ".github/workflows/ci.yml"),
    ("check-jsonschema", "--builtin-schema", "vendor.github-workflows", ".github/workflows/release.yml"),
]


@pytest.mark.parametrize("words", LINTERS, ids=lambda words: words[-1])
def test_a_linter_finds_nothing(words: tuple[str, ...]) -> None:
    tool = Path(sys.executable).with_name(words[0])
    done = subprocess.run([tool, *words[1:]], cwd=HOME, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def deployed_commands() -> list[list[str]]:
    """Return the words that each file passes to `corral`."""
    docker = re.search(r"^CMD (\[.*\])$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    assert docker is not None
    commands = [yaml.safe_load(docker[1])]
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    commands += [
        service["command"] for service in services.values() if "build" in service and "command" in service
    ]
    for document in yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()):
        if document["kind"] == "Deployment":
            commands += [
                container["args"] for container in document["spec"]["template"]["spec"]["containers"]
            ]
    return commands


def test_the_commands_and_their_options_exist() -> None:
    commands = deployed_commands()
    assert [words[0] for words in commands] == ["worker", "gateway", "worker", "gateway"]
    for words in commands:
        help_text = corral(words[0], "--help").out
        assert all(word in help_text for word in words if word.startswith("--"))


def test_workers_are_given_longer_to_stop_than_their_jobs() -> None:
    for words in deployed_commands():
        if "--grace" in words:
            assert float(words[words.index("--grace") + 1]) < 45
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    assert services["worker"]["stop_grace_period"] == "45s"
    worker = next(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
    assert worker["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 45


def test_the_units_are_those_of_the_page(tmp_path: Path) -> None:
    for name in Page("docs/how-to/systemd.md").unpack(tmp_path, kind="ini"):
        assert (DEPLOY / "systemd" / name).read_text() == (tmp_path / name).read_text()
