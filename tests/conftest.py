"""Real servers for every test: a Valkey of its own for each pytest process."""

from collections.abc import AsyncIterator, Iterator

import pytest

from corral.store.connect import Store
from tests.support.servers import Server, start_valkey


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def valkey() -> Iterator[Server]:
    """One Valkey for this pytest process."""
    server = start_valkey()
    yield server
    server.stop()


@pytest.fixture
def server(valkey: Server) -> Server:
    """That Valkey, emptied."""
    valkey.flush()
    return valkey


@pytest.fixture
def url(server: Server) -> str:
    """The address of an empty server."""
    return server.url


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    store = Store(url)
    yield store
    await store.close()
