"""`corral bench` inside and outside of the source tree."""

from pathlib import Path

import pytest

from corral.cli import bench
from tests.support.shell import corral, start


def test_arguments_are_passed_on_to_the_benchmarks() -> None:
    process = start("bench", "--help")
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert out.startswith("usage: python -m bench")
    wrong = start("bench", "--rounds", "0")
    _, err = wrong.communicate(timeout=60)
    assert (wrong.returncode, "--rounds 0 is no number of rounds" in err) == (2, True)


def test_without_a_source_tree_the_error_says_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    package = tmp_path / "lib" / "python" / "corral" / "cli" / "bench.py"
    monkeypatch.setattr(bench, "__file__", str(package))
    result = corral("bench")
    assert result.code == 1
    assert "part of the source tree" in result.err
    assert "make bench" in result.err
