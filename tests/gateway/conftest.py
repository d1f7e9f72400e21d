"""Gateways on an empty server."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from tests.support.gateway import Gateway
from tests.support.servers import Server

OpenGateway = Callable[..., Gateway]
REDIS_TIMEOUT_S = 10.0
"""Long enough for a machine that is busy with other tests."""


@pytest.fixture
def client(server: Server) -> Iterator[redis.Redis]:
    """A plain Redis client."""
    with server.connect() as client:
        yield client


@pytest.fixture
def open_gateway(server: Server) -> Iterator[OpenGateway]:
    """Opens gateways with the given settings; they stop with the test."""
    running: list[Gateway] = []

    def open_one(redis_url: str | None = None, **options: Any) -> Gateway:
        options.setdefault("redis_timeout_s", REDIS_TIMEOUT_S)
        running.append(Gateway(redis_url or server.url, **options))
        return running[-1]

    yield open_one
    for gateway in running:
        gateway.stop()


@pytest.fixture(scope="session")
def shared_gateway(valkey: Server) -> Iterator[Gateway]:
    """One gateway for this pytest process, with default settings and quick sweeps."""
    gateway = Gateway(valkey.url, sweep_s=0.05, redis_timeout_s=REDIS_TIMEOUT_S)
    yield gateway
    gateway.stop()


@pytest.fixture
def gateway(shared_gateway: Gateway, server: Server) -> Gateway:
    """The shared gateway, on an empty server."""
    return shared_gateway
