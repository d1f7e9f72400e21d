"""The supervisor process of an embedded server: keeps it running while any owner is connected.

Owners run this file as a process of its own, with the standard library alone, so that it starts in
milliseconds. Each connected process is an owner: it is sent one line of JSON (`url`, or `error`) once the
server replies, and stops being an owner when its connection closes, as happens even after SIGKILL.
"""

import ctypes
import fcntl
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

SUPERVISOR_SOCKET = "supervisor.sock"
SERVER_SOCKET = "server.sock"
SOCKETS = "supervisor.json"
LOG = "server.log"
LOCK = "supervisor.lock"

LONGEST_SOCKET_PATH = 100
"""Linux takes 107 bytes, macOS 103."""
TICK_S = 0.01
EVICT_AFTER_S = 1.0
LOCK_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 10.0


class SupervisorError(Exception):
    """The server cannot be kept running; the text goes to every owner."""


class ServerSupervisor:
    """One folder, its server, and the owners' connections."""

    def __init__(self, folder: Path, binary: str, first: socket.socket, temporary: bool) -> None:
        self.folder = folder
        self.binary = binary
        self.temporary = temporary
        self.owners = [first]
        self.sockets = folder
        self.listener: socket.socket | None = None
        self.server: subprocess.Popen[bytes] | None = None
        self.lock: int | None = None
        self.is_ready = False
        self.leaving: list[socket.socket] = []
        self._wakeup, self._wakeup_signal = socket.socketpair()

    def run(self) -> None:
        """Return when the last owner has disconnected and the server has ended."""
        error_text = None
        try:
            self._lock_folder()
            self._listen()
            self._wake_on_exit()
            self._start_server()
            while self.owners:
                self._serve_once()
        except (SupervisorError, OSError) as error:
            error_text = str(error)
        finally:
            self._shut_down()
        self._send_all({"error": error_text})

    def _lock_folder(self) -> None:
        """Wait until no other supervisor, and no server left behind by one, uses the folder."""
        self.lock = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        began = time.monotonic()
        while not _try_lock(self.lock):
            waited = time.monotonic() - began
            if waited > LOCK_TIMEOUT_S:
                raise SupervisorError(f"another server still uses {self.folder}, and does not end")
            if waited > EVICT_AFTER_S:
                self._evict()
            time.sleep(TICK_S)
        _remove_sockets(self.folder, sockets_of(self.folder) or self.folder)
        (self.folder / LOG).write_bytes(b"")

    def _evict(self) -> None:
        """Shut down the server of a supervisor that was killed, where the kernel did not."""
        sockets = sockets_of(self.folder)
        if sockets is None:
            return
        with suppress(OSError):
            connect(sockets / SUPERVISOR_SOCKET).close()
            return  # it is alive
        with suppress(OSError), connect(sockets / SERVER_SOCKET) as connection:
            connection.sendall(b"SHUTDOWN NOSAVE\r\n")

    def _listen(self) -> None:
        try:
            if len(os.fsencode(self.folder / SUPERVISOR_SOCKET)) > LONGEST_SOCKET_PATH:
                raise OSError("path too long for a socket")
            self.listener = _listening(self.folder / SUPERVISOR_SOCKET)
        except OSError:
            # too long a path, or a file system without sockets: use a short private folder
            self.sockets = Path(tempfile.mkdtemp(prefix="corral-", dir=_short_temporary_folder()))
            self.listener = _listening(self.sockets / SUPERVISOR_SOCKET)
        draft = self.folder / f"{SOCKETS}.new"
        draft.write_text(json.dumps({"sockets": str(self.sockets), "pid": os.getpid()}))
        draft.replace(self.folder / SOCKETS)

    def _start_server(self) -> None:
        assert self.lock is not None
        self.is_ready = False
        with (self.folder / LOG).open("ab") as log:
            self.server = subprocess.Popen(
                [self.binary, "--port", "0",
                 "--unixsocket", str(self.sockets / SERVER_SOCKET), "--unixsocketperm", "700",
                 "--dir", str(self.folder), "--appendonly", "yes", "--save", "",
                 "--daemonize", "no", "--logfile", ""],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                # the lock stays taken until the server has gone too
                pass_fds=[self.lock],
                preexec_fn=dies_with_parent(),
            )  # fmt: skip

    def _wake_on_exit(self) -> None:
        """Wake the loop when the server process ends."""
        self._wakeup_signal.setblocking(False)
        signal.set_wakeup_fd(self._wakeup_signal.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def _check_server(self) -> None:
        assert self.server is not None
        if self.server.poll() is not None:
            if not self.is_ready:
                log = (self.folder / LOG).read_text(errors="replace").strip().splitlines()
                tail = " / ".join(log[-3:]) or "its log is empty"
                raise SupervisorError(f"{self.binary} ended at once in {self.folder}: {tail}")
            # killed from outside: its append-only file has the data
            self._start_server()
        elif not self.is_ready and _replies(self.sockets / SERVER_SOCKET):
            self.is_ready = True
            self._send_all(self._ready_message())

    def _ready_message(self) -> dict[str, Any]:
        return {"url": f"unix://{quote(str(self.sockets / SERVER_SOCKET))}", "pid": os.getpid()}

    def _serve_once(self) -> None:
        assert self.listener is not None
        timeout = None if self.is_ready else TICK_S
        readable, _, _ = select.select([self._wakeup, self.listener, *self.owners], [], [], timeout)
        for connection in readable:
            if connection is self.listener:
                owner = self.listener.accept()[0]
                self.owners.append(owner)
                if self.is_ready:
                    _send(owner, self._ready_message())
            elif connection is self._wakeup:
                self._wakeup.recv(64)
            else:
                self._receive(connection)
        if self.owners:
            # the last owner's connection stays open until this process ends: that is how it sees the end
            for owner in self.leaving:
                owner.close()
            self.leaving.clear()
            self._check_server()

    def _receive(self, owner: socket.socket) -> None:
        """Remove an owner whose connection has closed; owners send nothing."""
        with suppress(OSError):
            if owner.recv(4096):
                return
        self.owners.remove(owner)
        self.leaving.append(owner)

    def _send_all(self, line: dict[str, Any]) -> None:
        for owner in self.owners:
            _send(owner, line)

    def _shut_down(self) -> None:
        if self.listener is not None:
            # first, so that a new owner starts another supervisor, which waits for the folder
            self.listener.close()
        if self.server is not None:
            self.server.terminate()
            try:
                self.server.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.server.kill()
                self.server.wait()
        if self.lock is not None and _try_lock(self.lock):
            _remove_sockets(self.folder, self.sockets)
        if self.temporary:
            shutil.rmtree(self.folder, ignore_errors=True)


def _try_lock(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def sockets_of(folder: Path) -> Path | None:
    """Return the folder of the sockets of `folder`'s supervisor and server; None where there was none."""
    try:
        return Path(json.loads((folder / SOCKETS).read_text())["sockets"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _remove_sockets(folder: Path, sockets: Path) -> None:
    """Remove the sockets of a supervisor that has ended or was killed."""
    (folder / SOCKETS).unlink(missing_ok=True)
    for name in (SUPERVISOR_SOCKET, SERVER_SOCKET):
        (sockets / name).unlink(missing_ok=True)
    if sockets != folder:
        with suppress(OSError):
            sockets.rmdir()


def _short_temporary_folder() -> str:
    usual = tempfile.gettempdir()
    return usual if len(os.fsencode(usual)) < LONGEST_SOCKET_PATH - 40 else "/tmp"


def _listening(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(128)
    except OSError:
        listener.close()
        raise
    return listener


def connect(path: Path, timeout: float = 1.0) -> socket.socket:
    """Return a connection to the socket at `path`, or raise OSError."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(timeout)
    try:
        connection.connect(str(path))
    except OSError:
        connection.close()
        raise
    return connection


def _replies(path: Path) -> bool:
    try:
        with connect(path) as connection:
            connection.sendall(b"PING\r\n")
            # while it loads its file the reply is -LOADING
            return connection.recv(64).startswith(b"+PONG")
    except OSError:
        return False


def _send(owner: socket.socket, line: dict[str, Any]) -> None:
    with suppress(OSError):
        owner.sendall(json.dumps(line).encode() + b"\n")


def dies_with_parent() -> Callable[[], None] | None:
    """Return a function that makes Linux end the server cleanly when its supervisor is killed."""
    if sys.platform != "linux":
        return None
    set_option = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def prepare() -> None:
        set_option(1, signal.SIGTERM, 0, 0, 0)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:
            os._exit(1)

    return prepare


def main(arguments: list[str]) -> None:
    """Detach from the owner that started this process, then run."""
    folder, binary, first, temporary = arguments
    if os.fork():
        os._exit(0)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    connection = socket.socket(fileno=int(first))
    connection.set_inheritable(False)
    ServerSupervisor(Path(folder), binary, connection, temporary == "temporary").run()


if __name__ == "__main__":
    main(sys.argv[1:])
