"""BullMQ's official Python client, in an environment of its own: it pins other versions than Corral's."""

import os
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def official_python() -> Path:
    """The Python that has it; `make` builds one under .make/official."""
    return Path(os.environ.get("CORRAL_OFFICIAL_PYTHON", ROOT / ".make" / "official" / "bin" / "python"))


@cache
def official_version() -> str | None:
    """Which version is there; None: none is."""
    program = "from importlib.metadata import version; print(version('bullmq'))"
    try:
        done = subprocess.run(
            [str(official_python()), "-c", program], capture_output=True, text=True, check=True, timeout=30
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
