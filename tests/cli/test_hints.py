"""A server that says no is named, without its password, with what to try."""

from collections.abc import Iterator

import pytest

from tests.cli.conftest import Shell
from tests.support.servers import Server, free_port, start_valkey


@pytest.fixture
def guarded(server: Server) -> Iterator[Server]:
    """A server that wants a password."""
    with server.connect() as client:
        client.config_set("requirepass", "secret")
        yield server
        client.config_set("requirepass", "")


def tried(shell: Shell, *words: str, url: str) -> str:
    said = shell(*words, "--url", url)
    assert (said.code, said.out) == (3, "")
    assert "secret" not in said.err
    assert "Traceback" not in said.err
    told, *advice = said.err.splitlines()
    assert f"127.0.0.1:{url.rpartition(':')[2].partition('/')[0]}" in told, "what was dialled"
    return "\n".join(advice)


def test_a_password_that_is_missing_or_wrong_is_told(shell: Shell, guarded: Server) -> None:
    assert "wants a password: redis://:PASSWORD@" in tried(shell, "queue", "ls", url=guarded.url)
    wrong = guarded.url.replace("//", "//:secret-no@")
    assert "not the server's" in tried(shell, "queue", "ls", url=wrong)


def test_nobody_at_an_address_is_told_with_the_way_to_another(shell: Shell) -> None:
    told = tried(shell, "queue", "ls", url=f"redis://127.0.0.1:{free_port()}")
    assert told == "try: --url URL names another; with neither that nor REDIS_URL, a private one is used"


def test_a_database_that_is_not_there_is_told(shell: Shell, server: Server) -> None:
    assert "such as /0" in tried(shell, "queue", "ls", url=f"{server.url}/99")


def test_a_server_without_tls_is_told(shell: Shell, server: Server) -> None:
    assert "begins with redis://" in tried(shell, "queue", "ls", url=server.url.replace("redis:", "rediss:"))


def test_keys_of_another_program_are_told(shell: Shell, server: Server) -> None:
    with server.connect() as client:
        client.set("bull:mail:wait", "no list")
        client.hset("bull:mail:meta", "opts", "{}")
    assert "--namespace" in tried(shell, "queue", "ls", url=server.url)
    assert "--namespace" in tried(shell, "queue", "add", "mail", "greet", url=server.url)


def test_a_replica_is_told(shell: Shell, server: Server) -> None:
    replica = start_valkey("--replicaof", f"127.0.0.1 {server.port}")
    try:
        assert "dial its primary" in tried(shell, "queue", "add", "mail", "greet", url=replica.url)
    finally:
        replica.stop()
