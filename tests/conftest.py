"""Real servers for every test: a Valkey of its own for each pytest process."""

from collections.abc import AsyncIterator, Callable, Iterator

import pytest
import redis

from corral.store.client import Store
from tests.support.node import Node, why_no_node
from tests.support.proxy import Proxy
from tests.support.servers import Server, redis_server_binary, start_valkey

# it registers itself where the package is installed anew
pytest_plugins = ["corral.testing.plugin"]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of one `xdist_group` together.

    pytest-xdist 3.8 writes a test's group into `_nodeid`, and pytest 9.2 has its id elsewhere: without this,
    every test is a group of its own.
    """
    for item in items:
        grouped = getattr(item, "_nodeid", item.nodeid)
        if grouped != item.nodeid:
            from _pytest.nodeid import NodeId

            item._id = NodeId.parse(grouped)


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
    """The process's Valkey, emptied."""
    valkey.flush()
    return valkey


@pytest.fixture(scope="session")
def debian_redis() -> Iterator[Server]:
    """Debian's Redis for this pytest process; tests that need it are skipped where it is missing."""
    binary = redis_server_binary()
    if binary is None:
        pytest.skip("redis-server is not installed")
    server = start_valkey(binary=binary)
    yield server
    server.stop()


@pytest.fixture
def redis7(debian_redis: Server) -> Server:
    """The process's Redis, emptied."""
    debian_redis.flush()
    return debian_redis


@pytest.fixture
def url(server: Server) -> str:
    """The address of an empty server."""
    return server.url


@pytest.fixture
def client(server: Server) -> Iterator[redis.Redis]:
    """A plain client, for looking at the keyspace."""
    with server.connect() as client:
        yield client


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    """A proxy in front of an empty server, which cuts connections as a test demands."""
    with Proxy(server.port) as proxy:
        yield proxy


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    store = Store(url)
    yield store
    await store.close()


@pytest.fixture(scope="session")
def node_process() -> Iterator[Callable[[int], Node]]:
    """Returns the Node of this pytest process, one for each generation of BullMQ."""
    running: dict[int, Node] = {}

    def process(generation: int) -> Node:
        if generation not in running:
            missing = why_no_node(generation)
            if missing:
                # the proof against the real peer is not left out in silence
                pytest.fail(missing, pytrace=False)
            running[generation] = Node(generation=generation)
        return running[generation]

    yield process
    for node in running.values():
        node.kill()


@pytest.fixture
async def node(request: pytest.FixtureRequest, node_process: Callable[[int], Node]) -> AsyncIterator[Node]:
    """The process's Node, without open objects before and after; its parameter is the generation, else 5."""
    process = node_process(getattr(request, "param", 5))
    await process("closeAll")
    yield process
    await process("closeAll")
