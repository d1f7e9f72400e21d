"""Each protocol on an empty server, with the means to do it harm."""

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.support.chaos_arena import Arena
from tests.support.chaos_ledger import PROTOCOLS
from tests.support.proxy import Proxy
from tests.support.servers import Server


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
async def arena(server: Server, protocol: str) -> AsyncIterator[Arena]:
    arena = Arena(server, protocol)
    yield arena
    await arena.close()


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    with Proxy(server.port) as proxy:
        yield proxy
