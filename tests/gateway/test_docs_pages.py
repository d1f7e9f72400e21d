"""The pages name every problem, every setting, every event and every path there is."""

import re
from pathlib import Path

from corral.gateway import Settings, create_app
from corral.gateway.callers import Role
from corral.gateway.problems import KINDS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "http.md").read_text()
SOURCE = "".join(path.read_text() for path in sorted((ROOT / "src/corral/gateway").glob("*.py")))


def test_every_problem_is_on_the_page_with_its_status() -> None:
    for kind in KINDS:
        assert f"| `{kind.name}` | {kind.status} |" in PAGE


def test_every_setting_is_on_the_page_with_its_default() -> None:
    for name, setting in Settings.model_fields.items():
        [row] = re.findall(rf"^\| `{name}` \| (.*?) \| .+ \|$", PAGE, re.MULTILINE)
        if isinstance(setting.default, int | float | str):
            assert row == str(setting.default).replace("False", "false")


def test_every_event_of_the_gateways_own_is_on_the_page() -> None:
    told = set(re.findall(r'own\(\s*"(gateway\.[a-z]+)"', SOURCE))
    assert len(told) >= 8
    assert {name for name in told if f"`{name}`" not in PAGE} == set()


def test_every_role_is_on_the_page() -> None:
    assert all(f"| `{role}` |" in PAGE for role in Role)


def test_every_path_is_on_the_page() -> None:
    document = create_app(Settings(redis_url="redis://127.0.0.1:1")).openapi()
    for path in document["paths"]:
        last = path.replace("{job_id}", "{id}").removeprefix("/v1/queues/{protocol}/{queue}")
        if last.endswith("{verb}"):
            last = last.replace("{verb}", "{retry,promote,remove,cancel}")
        assert last in PAGE, path
