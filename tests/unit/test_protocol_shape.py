"""Every protocol has the same shape, and nothing but the registry and the drop-in names one."""

import ast
from pathlib import Path

import pytest

import corral
from corral.protocols import all_protocols, protocol_names

SOURCE = Path(corral.__file__).parent
FILES = {
    "__init__.py", "keys.py", "options.py", "codec.py", "scripts.py", "broker.py", "reporter.py", "events.py",
    "inspector.py", "operator.py", "snapshot.py", "transfer.py", "ports.py",
}  # fmt: skip
EXTRAS = {"bullmq": {"flows", "schedulers"}, "streams": {"http"}, "bridgemq": {"schedules"}}
"""The subpackages of what only one protocol has."""
MAY_NAME_PROTOCOLS = (
    "protocols/__init__.py",
    "protocols/bullmq/",
    "protocols/streams/",
    "protocols/bridgemq/",
    "bullmq/",
    "cli/demo/",
)


@pytest.mark.parametrize("protocol", protocol_names())
def test_a_protocol_has_the_same_files_as_the_others(protocol: str) -> None:
    folder = SOURCE / "protocols" / protocol
    assert {path.name for path in folder.glob("*.py")} == FILES
    folders = {path.name for path in folder.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders == EXTRAS[protocol] | {"lua"}


@pytest.mark.parametrize("protocol", protocol_names())
def test_a_script_is_headed_by_its_name_and_what_it_returns(protocol: str) -> None:
    for path in (SOURCE / "protocols" / protocol / "lua").glob("*.lua"):
        text = path.read_text()
        assert text.startswith(f"-- {path.stem}: "), path
        assert "\n-- Returns  " in text, path


def test_no_other_module_names_a_protocol() -> None:
    names, naming = set(protocol_names()), []
    for path in SOURCE.rglob("*.py"):
        where = path.relative_to(SOURCE).as_posix()
        if where.startswith(MAY_NAME_PROTOCOLS):
            continue
        tree = ast.parse(path.read_text())
        examples = {
            id(value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Dict)
            for key, value in zip(node.keys, node.values, strict=True)
            if isinstance(key, ast.Constant) and key.value == "protocol"
        }
        naming += [
            f"{where}:{node.lineno}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and node.value in names and id(node) not in examples
        ]
    assert naming == []


def test_the_options_of_a_protocol_have_help_texts() -> None:
    for spec in (protocol.spec for protocol in all_protocols()):
        assert spec.summary
        assert all(spec.options.values()), spec.name
