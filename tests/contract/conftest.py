"""Every protocol, as the contract suite sees it."""

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from corral.protocols import protocol_names
from corral.store.client import Store
from tests.support.harness import QueueHarness


class ContractHarness(QueueHarness):
    """A queue whose workers look for abandoned jobs at once."""

    profile = {"lock_ms": 30_000, "recover_ms": 20}  # noqa: RUF012


@pytest.fixture(params=protocol_names())
async def harness(request: pytest.FixtureRequest, store: Store) -> AsyncIterator[QueueHarness]:
    async with ContractHarness(request.param, store) as harness:
        yield harness


@contextmanager
def within(seconds: float) -> Iterator[Any]:
    """Fail where the block takes longer."""
    start = time.monotonic()
    yield
    took = time.monotonic() - start
    assert took < seconds, f"took {took:.2f} s, expected < {seconds} s"
