"""Addresses, reconnect delays, script parts and error texts of the store, without a server."""

from pathlib import Path

import pytest

from corral.errors import (
    InvalidOptions,
    RedisBusyError,
    RedisClusterError,
    RedisConnectionError,
    RedisError,
    RedisLoadingError,
    RedisOutOfMemoryError,
    RedisPersistenceError,
    RedisReadOnlyError,
    RedisResponseError,
    RedisUnblockedError,
)
from corral.store.address import without_password
from corral.store.client import Reconnect, Store
from corral.store.errors import ConnectError, NoScriptError, SlotMovedError, connect_error, error_from_reply
from corral.store.scripts import Scripts


@pytest.mark.parametrize(
    ("address", "complaint"),
    [
        ("http://127.0.0.1:6379", "schemes"),
        ("127.0.0.1:6379", "schemes"),
        ("", "schemes"),
        ("redis://127.0.0.1/mail", "'mail' is not the number of a database"),
        ("redis://127.0.0.1:99999", "Port out of range"),
        ("redis://127.0.0.1:port", "Port could not be cast"),
        ("redis://[::1", "Invalid IPv6 URL"),
        ("redis://127.0.0.1?colour=blue", "unexpected keyword argument 'colour'"),
        ("redis://127.0.0.1?socket_timeout=soon", "Invalid value for"),
        ("unix://", "it has no path"),
    ],
)
def test_a_wrong_address_is_refused_by_name(address: str, complaint: str) -> None:
    with pytest.raises(InvalidOptions) as caught:
        Store(address)
    assert complaint in str(caught.value)
    assert "write redis://host:6379/0" in str(caught.value)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("redis://127.0.0.1:6379", "redis://127.0.0.1:6379"),
        ("redis://:secret@db", "redis://:***@db"),
        ("rediss://me:se%40cret@db:1/2?ssl_cert_reqs=none", "rediss://me:***@db:1/2?ssl_cert_reqs=none"),
        ("unix:///run/a%20b.sock", "unix:///run/a%20b.sock"),
        ("unix:///run/s?password=secret&db=1", "unix:/run/s?password=***&db=1"),
        ("redis://:secret@[", "redis://…"),
    ],
)
def test_passwords_are_never_shown(address: str, shown: str) -> None:
    assert without_password(address) == shown


@pytest.mark.parametrize(
    ("attempt", "seconds"),
    [(1, 0.1), (2, 0.2), (3, 0.4), (4, 0.8), (5, 1.6), (9, 25.6), (10, 30.0), (11, 30.0), (10_000, 30.0)],
)
def test_reconnecting_waits_twice_as_long_each_time_up_to_half_a_minute(attempt: int, seconds: float) -> None:
    waits = [Reconnect().delay(attempt - 1) for _ in range(500)]
    assert min(waits) >= seconds * 0.8
    assert max(waits) <= seconds * 1.2
    # ±20 % is used, so that many workers do not reconnect at the same moment
    assert max(waits) - min(waits) > seconds * 0.3


def test_reconnecting_has_no_end_unless_one_is_given() -> None:
    assert Reconnect().max_tries == 0
    assert Reconnect(max_tries=3).max_tries == 3
    assert Reconnect(first_ms=10, most_ms=20).delay(50) <= 0.024


def test_the_parts_a_script_uses_are_put_in_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "a_folder_of_tests"
    (folder / "lua" / "parts").mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "lua" / "verb.lua").write_text("-- use one\n-- use two\nreturn one() + two()\n")
    (folder / "lua" / "parts" / "one.lua").write_text("local function one() return 1 end\n")
    (folder / "lua" / "parts" / "two.lua").write_text("-- use one\nlocal function two() return one() end\n")
    monkeypatch.syspath_prepend(tmp_path)
    script = Scripts("a_folder_of_tests")["verb"]
    assert script.text.count("local function one") == 1
    found = [script.text.index(part) for part in ("function one", "function two", "return one() +")]
    assert found == sorted(found)


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        ("LOADING Redis is loading the dataset in memory", RedisLoadingError),
        ("READONLY You can't write against a read only replica.", RedisReadOnlyError),
        ("MISCONF Redis is configured to save RDB snapshots, but cannot", RedisPersistenceError),
        ("OOM command not allowed when used memory > 'maxmemory'.", RedisOutOfMemoryError),
        ("UNBLOCKED client unblocked via CLIENT UNBLOCK", RedisUnblockedError),
        ("NOSCRIPT No matching script. Please use EVAL.", RedisResponseError),
        ("MOVED 3999 127.0.0.1:6381", RedisClusterError),
        ("ASK 3999 127.0.0.1:6381", RedisClusterError),
        ("TRYAGAIN Multiple keys request during rehashing of slot", RedisClusterError),
        ("CLUSTERDOWN The cluster is down", RedisClusterError),
        ("BUSY Redis is busy running a script. You can only call SCRIPT KILL.", RedisBusyError),
        ("BUSYGROUP Consumer Group name already exists", RedisResponseError),
        ("ERR max number of clients reached", RedisConnectionError),
        ("NOAUTH Authentication required.", RedisResponseError),
        # as servers before Redis 7 wrap what was said inside a script
        ("ERR Error running script (call to f_1f8f4c): @user_script:1: @user_script: 1: "
         "-OOM command not allowed when used memory > 'maxmemory'.", RedisOutOfMemoryError),
        ("ERR Error running script (call to f_1f8f4c): @user_script:1: @user_script: 1: "
         "-READONLY You can't write against a read only replica.", RedisReadOnlyError),
    ],
)  # fmt: skip
def test_each_word_a_server_may_say_has_its_error(said: str, fault: type[RedisError]) -> None:
    found = error_from_reply(said, "redis://db")
    assert isinstance(found, fault)
    assert type(found) in (fault, NoScriptError, SlotMovedError)
    assert str(found).startswith("redis://db: ")


@pytest.mark.parametrize(
    "lost",
    [ConnectionResetError(104, "Connection reset by peer"), BrokenPipeError(32, "broken"), TimeoutError()],
    ids=lambda error: type(error).__name__,
)
def test_a_connection_that_cannot_be_made_is_away(lost: Exception) -> None:
    found = connect_error(lost, "redis://db")
    assert type(found) is ConnectError
    assert isinstance(found, RedisConnectionError)
    assert isinstance(found, ConnectionError)
    assert str(found) != "redis://db: "
