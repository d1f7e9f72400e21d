"""Generations: a table in files that changes at once for every reader.

`<lake>/<table>` points to the folder of the current generation. A change builds the next one aside, from
links to the files that stay and folders that are new, and then turns the pointer: whoever looks sees the old
table or the new one, and an old one stays readable for a while to those who have begun to read it.
"""

import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4

from corral.errors import CorralError

STORE = "_store"
WORK = "_work"
MANIFEST = "_manifest.json"
GRACE_S = 15 * 60
"""So long an old generation can still be read."""


class LakeBusy(CorralError):
    """Another process works on this lake."""


class Generations:
    """The generations of one table of one lake."""

    def __init__(self, root: Path, name: str) -> None:
        self.pointer = root / name
        self._root = root
        self._store = root / STORE / name

    def current(self) -> Path | None:
        """The folder that holds the table now; None before there is one."""
        return self.pointer.resolve() if self.pointer.is_symlink() else None

    def manifest(self) -> dict[str, Any]:
        """What the current generation says of itself."""
        current = self.current()
        return {} if current is None else read_json(current / MANIFEST) or {}

    def files(self) -> list[Path]:
        """The files of data there are now."""
        current = self.current()
        return [] if current is None else sorted(visible(current))

    def advance(
        self,
        manifest: Mapping[str, Any],
        keep: Callable[[Path], bool] = lambda relative: True,
        add: Mapping[str, Path] | None = None,
    ) -> Path:
        """The next generation: the present files that `keep` wants, and these folders under these names."""
        current = self.current()
        number = 0 if current is None else int(current.name) + 1
        made = self._root / WORK / f"generation-{uuid4().hex}"
        made.mkdir(parents=True)
        if current is not None:
            for file in visible(current, with_marks=True):
                relative = file.relative_to(current)
                if keep(relative):
                    _link(file, made / relative)
        for name, folder in (add or {}).items():
            folder.rename(made / name)
        write_json(made / MANIFEST, {**manifest, "generation": number, "at": time.time()})
        target = self._store / f"{number:08d}"
        self._store.mkdir(parents=True, exist_ok=True)
        if target.exists():  # its maker died before the pointer was turned
            shutil.rmtree(target)
        made.rename(target)
        self._point(target)
        self.forget()
        return target

    def _point(self, target: Path) -> None:
        fresh = self._root / WORK / f"pointer-{uuid4().hex}"
        fresh.symlink_to(os.path.relpath(target, self.pointer.parent))
        os.replace(fresh, self.pointer)

    def forget(self, grace_s: float = GRACE_S) -> None:
        """Delete generations that were left long enough ago."""
        current = self.current()
        if current is None:
            return
        past = sorted(folder for folder in self._store.iterdir() if folder.name < current.name)
        for folder, successor in pairwise([*past, current]):
            left_at = (read_json(successor / MANIFEST) or {}).get("at", 0)
            if time.time() - left_at > grace_s:
                shutil.rmtree(folder, ignore_errors=True)


def visible(folder: Path, with_marks: bool = False) -> Iterator[Path]:
    """The files that a reader of this folder sees; `with_marks` also those that begin with `_`."""
    for path in folder.iterdir():
        if path.name.startswith(".") or path.name == MANIFEST:
            continue
        if path.is_dir():
            yield from visible(path, with_marks)
        elif with_marks or not path.name.startswith("_"):
            yield path


def read_json(path: Path) -> dict[str, Any] | None:
    """What the file says; None where it is not there."""
    try:
        told: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    return told


def write_json(path: Path, told: Mapping[str, Any]) -> None:
    """Write the file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}-{uuid4().hex}")
    fresh.write_text(json.dumps(told, sort_keys=True))
    os.replace(fresh, path)


@contextmanager
def locked(path: Path, wait: bool = True) -> Iterator[None]:
    """Hold a lock that goes with its process; `LakeBusy` where another has it and nobody wants to wait."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise LakeBusy(
                f"another process works on the lake {path.parent}; wait until it has ended, or stop it"
            ) from None
        yield


def _link(file: Path, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(file, place)
    except OSError:  # a file system without links
        shutil.copy2(file, place)
