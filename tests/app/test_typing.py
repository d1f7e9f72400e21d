"""mypy --strict accepts what is right, and refuses every wrong argument, option and result."""

import re
from pathlib import Path

from mypy import api

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "app" / "typing"
MARK = re.compile(r"# error: ([\w -]+)$")


def test_a_type_checker_finds_what_is_wrong_and_nothing_else() -> None:
    settings = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(ROOT / ".mypy_cache")]
    files = [str(FOLDER / "right.py"), str(FOLDER / "wrong.py")]
    out, err, _ = api.run([*settings, "--no-pretty", *files])
    errors = {
        (Path(path).name, int(line), code)
        for path, line, code in re.findall(r"^(\S+?):(\d+): error: .*\[([\w-]+)\]$", out, re.MULTILINE)
    }
    lines = (FOLDER / "wrong.py").read_text().splitlines()
    marked = {
        ("wrong.py", number, code)
        for number, line in enumerate(lines, 1)
        if (mark := MARK.search(line))
        for code in mark[1].split()
    }
    assert len(marked) > 20
    assert errors == marked, f"{out}{err}"
