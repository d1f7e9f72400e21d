"""The command line, run inside this process or as one of its own."""

import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corral.cli import main


@dataclass
class Said:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def documents(self) -> list[Any]:
        """Each line of the output as JSON."""
        return [json.loads(line) for line in self.out.splitlines()]


def corral(*words: str) -> Said:
    """Run a command here."""
    out, err = io.StringIO(), io.StringIO()
    code: Any = None
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main(words)
        except SystemExit as end:
            code = end.code
    assert isinstance(code, int), f"a command ends with an exit code, not {code!r}"
    return Said(code, out.getvalue(), err.getvalue())


def start(*words: str, cwd: Path | None = None, **environment: str) -> "subprocess.Popen[str]":
    """Start a command as a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "corral.cli", *words],
        cwd=cwd,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
