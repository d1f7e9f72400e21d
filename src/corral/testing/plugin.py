"""The pytest plugin: a private server for the session, emptied for each test."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

# what is imported here is imported by every run of pytest where Corral is installed
if TYPE_CHECKING:
    from corral.app import Corral
    from corral.store.embedded import EmbeddedServer
    from corral.testing import Clock

UseApp = Callable[["Corral"], "Corral"]


@pytest.fixture(scope="session")
def corral_server() -> Iterator["EmbeddedServer"]:
    """A private server, started when a test first needs it."""
    from corral.store.embedded import EmbeddedServer

    with EmbeddedServer(temporary=True) as server:
        yield server


@pytest.fixture
def corral_clock() -> "Clock":
    """The clock of the apps that `corral_app` is called with."""
    from corral.testing import Clock

    return Clock()


@pytest.fixture
def corral_app(corral_server: "EmbeddedServer", corral_clock: "Clock") -> Iterator[UseApp]:
    """A function that lets an app use the private server, emptied, and a clock that can be moved.

    >>> @pytest.fixture                                                                 # doctest: +SKIP
    ... def app(corral_app):
    ...     return corral_app(shop.app)
    """
    from redis import Redis

    from corral.testing import using

    with Redis.from_url(corral_server.url) as client:
        client.flushall()
    with ExitStack() as stack:
        yield lambda app: stack.enter_context(using(app, corral_server.url, corral_clock))
