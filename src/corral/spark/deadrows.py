"""Rows that could not become jobs, each with its reason, in files beside the data they came from."""

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import orjson
from pyarrow import fs


class DeadRows:
    """One task's file of refused rows, JSON, one a line; a task that runs again writes the same file."""

    def __init__(self, folder: str, write: str, partition: int) -> None:
        self._system, path = filesystem(folder)
        self._folder = f"{path.rstrip('/')}/{write}"
        self._path = f"{self._folder}/part-{partition:05d}.json"
        self._file: Any = None
        self.count = 0

    def add(self, row: Mapping[str, Any], error: Exception, now: int) -> None:
        """Keep a row and why it was refused."""
        if self._file is None:
            self._system.create_dir(self._folder, recursive=True)
            self._file = self._system.open_output_stream(self._path)
        told = {"reason": str(error), "error": type(error).__name__, "at": now, "row": row}
        self._file.write(orjson.dumps(told, default=repr, option=orjson.OPT_NON_STR_KEYS) + b"\n")
        self.count += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()


def filesystem(folder: str) -> tuple[Any, str]:
    """(file system, path in it) of a path on this machine or an address such as s3://bucket/folder."""
    if "://" in folder or folder.startswith("file:"):
        system, path = fs.FileSystem.from_uri(folder)
        return system, path
    return fs.LocalFileSystem(), folder
