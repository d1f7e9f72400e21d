"""`corral prove` inside and outside of the source tree; its runs are tested in tests/faults/prove."""

from pathlib import Path

import pytest

from corral.cli import bench
from tests.faults.checker import Writer
from tests.faults.checker.records import NewJob, Start
from tests.support.shell import corral, start


def prove(*words: str) -> tuple[int, str, str]:
    process = start("prove", *words)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def test_the_same_seed_prints_the_same_plan() -> None:
    words = ("--plan", "--seed", "7", "--protocol", "streams")
    code, out, err = prove(*words)
    assert (code, err) == (0, "")
    assert out.startswith("streams, seed 7: ")
    assert "restart server" in out
    assert prove(*words) == (code, out, err)


def test_histories_of_others_are_judged(tmp_path: Path) -> None:
    with Writer.in_folder(tmp_path, "client") as history:
        op = history.invoke("add", "mail", jobs=[NewJob(id="7")])
        history.ok(op, ["7"])
    code, out, _ = prove("check", str(tmp_path))
    assert (code, "origin       holds in 1 case" in out) == (0, True)
    with Writer.in_folder(tmp_path, "worker") as history:
        history.write(Start(queue="mail", job="8", receipt="r1", worker="w1"))
    code, out, _ = prove("check", str(tmp_path))
    assert (code, "job '8' is there, and nobody added it" in out) == (1, True)
    code, _, err = prove("check", str(tmp_path / "nothing"))
    assert (code, "cannot be read" in err) == (2, True)


def test_without_a_source_tree_the_error_says_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bench, "__file__", str(tmp_path / "lib" / "python" / "corral" / "cli" / "bench.py"))
    result = corral("prove")
    assert result.code == 1
    assert "part of the source tree" in result.err
