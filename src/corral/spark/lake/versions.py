"""TableVersions: a table of Parquet files that changes at once for every reader.

`<lake>/<table>` is a link to the folder of the current version. A change builds the next version aside, from
hard links to the files that stay and from new folders, and then replaces the link: a reader sees the old
table or the new one, and an old one stays readable for a while for readers that have begun with it.
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
"""How long an old version can still be read."""


class LakeBusy(CorralError):
    """Another process works on this lake."""


class TableVersions:
    """The versions of one table of one lake."""

    def __init__(self, root: Path, name: str) -> None:
        self.pointer = root / name
        self._root = root
        self._store = root / STORE / name

    def current(self) -> Path | None:
        """Return the folder of the current version; None before the first."""
        return self.pointer.resolve() if self.pointer.is_symlink() else None

    def manifest(self) -> dict[str, Any]:
        """Return the manifest of the current version."""
        current = self.current()
        return {} if current is None else read_json(current / MANIFEST) or {}

    def advance(
        self,
        manifest: Mapping[str, Any],
        keep: Callable[[Path], bool] = lambda relative: True,
        add: Mapping[str, Path] | None = None,
    ) -> Path:
        """Make the next version of the current files that `keep` selects and of these folders by name."""
        current = self.current()
        number = 0 if current is None else int(current.name) + 1
        draft = self._root / WORK / f"version-{uuid4().hex}"
        draft.mkdir(parents=True)
        if current is not None:
            for file in visible(current, with_marks=True):
                relative = file.relative_to(current)
                if keep(relative):
                    _link(file, draft / relative)
        for name, folder in (add or {}).items():
            folder.rename(draft / name)
        write_json(draft / MANIFEST, {**manifest, "version": number, "at": time.time()})
        target = self._store / f"{number:08d}"
        self._store.mkdir(parents=True, exist_ok=True)
        if target.exists():  # its writer died before the link was replaced
            shutil.rmtree(target)
        draft.rename(target)
        link = self._root / WORK / f"pointer-{uuid4().hex}"
        link.symlink_to(os.path.relpath(target, self.pointer.parent))
        os.replace(link, self.pointer)
        self.expire()
        return target

    def expire(self, grace_s: float = GRACE_S) -> None:
        """Delete versions that were replaced more than `grace_s` ago."""
        current = self.current()
        if current is None:
            return
        past = sorted(folder for folder in self._store.iterdir() if folder.name < current.name)
        for folder, successor in pairwise([*past, current]):
            replaced_at = (read_json(successor / MANIFEST) or {}).get("at", 0)
            if time.time() - replaced_at > grace_s:
                shutil.rmtree(folder, ignore_errors=True)


def visible(folder: Path, with_marks: bool = False) -> Iterator[Path]:
    """Yield the files that a reader of this folder sees; `with_marks` also those that begin with `_`."""
    for path in folder.iterdir():
        if path.name.startswith(".") or path.name == MANIFEST:
            continue
        if path.is_dir():
            yield from visible(path, with_marks)
        elif with_marks or not path.name.startswith("_"):
            yield path


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the object in the file; None where there is no file."""
    try:
        content: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    return content


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write the file completely or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}-{uuid4().hex}")
    draft.write_text(json.dumps(content, sort_keys=True))
    os.replace(draft, path)


@contextmanager
def locked(path: Path, wait: bool = True) -> Iterator[None]:
    """Hold a lock that ends with its process; raise `LakeBusy` where it is held and `wait` is false."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise LakeBusy(
                f"another process works on the lake {path.parent}; wait until it has ended, or stop it"
            ) from None
        yield


def _link(file: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(file, target)
    except OSError:  # a file system without hard links
        shutil.copy2(file, target)
