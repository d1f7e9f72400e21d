"""Gateways for tests: each on an empty server."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from tests.support.gateway import Gateway
from tests.support.servers import Server

Open = Callable[..., Gateway]
ANSWER_S = 10.0
"""A machine that is busy with other tests is no server that is away."""


@pytest.fixture
def client(server: Server) -> Iterator[redis.Redis]:
    """A plain client on the keyspace."""
    with server.connect() as client:
        yield client


@pytest.fixture
def opened(server: Server) -> Iterator[Open]:
    """Opens gateways with the settings a test wants; they end with it."""
    running: list[Gateway] = []

    def open_one(redis_url: str | None = None, **options: Any) -> Gateway:
        options.setdefault("answer_s", ANSWER_S)
        running.append(Gateway(redis_url or server.url, **options))
        return running[-1]

    yield open_one
    for gateway in running:
        gateway.stop()


@pytest.fixture(scope="session")
def standing(valkey: Server) -> Iterator[Gateway]:
    """One gateway for this pytest process, with the usual settings and quick sweeps."""
    gateway = Gateway(valkey.url, sweep_s=0.05, answer_s=ANSWER_S)
    yield gateway
    gateway.stop()


@pytest.fixture
def gateway(standing: Gateway, server: Server) -> Gateway:
    """That gateway, on an empty server."""
    return standing
