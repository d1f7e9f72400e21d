"""An error of a server names the server, without its password, and what to try."""

from collections.abc import Iterator

import pytest

from tests.cli.conftest import Shell
from tests.support.servers import Server, free_port, start_valkey


@pytest.fixture
def password_server(server: Server) -> Iterator[Server]:
    """A server that requires a password."""
    with server.connect() as client:
        client.config_set("requirepass", "secret")
        yield server
        client.config_set("requirepass", "")


def hints(shell: Shell, *words: str, url: str) -> str:
    result = shell(*words, "--url", url)
    assert (result.code, result.out) == (3, "")
    assert "secret" not in result.err
    assert "Traceback" not in result.err
    message, *notes = result.err.splitlines()
    assert f"127.0.0.1:{url.rpartition(':')[2].partition('/')[0]}" in message, "the address"
    return "\n".join(notes)


def test_a_missing_or_wrong_password_is_named(shell: Shell, password_server: Server) -> None:
    assert "requires a password: redis://:PASSWORD@" in hints(shell, "queue", "ls", url=password_server.url)
    wrong = password_server.url.replace("//", "//:secret-no@")
    assert "in the address is wrong" in hints(shell, "queue", "ls", url=wrong)


def test_an_address_without_a_server_is_named_with_the_way_to_another(shell: Shell) -> None:
    hint = hints(shell, "queue", "ls", url=f"redis://127.0.0.1:{free_port()}")
    assert hint == "try: --url URL for another one; without --url and REDIS_URL, a private server is used"


def test_a_missing_database_is_named(shell: Shell, server: Server) -> None:
    assert "such as /0" in hints(shell, "queue", "ls", url=f"{server.url}/99")


def test_a_server_without_tls_is_named(shell: Shell, server: Server) -> None:
    assert "begins with redis://" in hints(shell, "queue", "ls", url=server.url.replace("redis:", "rediss:"))


def test_keys_of_another_program_are_named(shell: Shell, server: Server) -> None:
    with server.connect() as client:
        client.set("bull:mail:wait", "no list")
        client.hset("bull:mail:meta", "opts", "{}")
    listing = shell("queue", "ls", "--url", server.url)
    assert (listing.code, "wrong kind of value" in listing.out) == (0, True), "one odd queue stops no listing"
    assert "--namespace" in hints(shell, "queue", "add", "mail", "greet", url=server.url)


def test_a_replica_is_named(shell: Shell, server: Server) -> None:
    replica = start_valkey("--replicaof", f"127.0.0.1 {server.port}")
    try:
        assert "connect to its primary" in hints(shell, "queue", "add", "mail", "greet", url=replica.url)
    finally:
        replica.stop()
