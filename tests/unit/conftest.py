"""Tests of this folder need no server: whatever would start one fails here."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ELSEWHERE = (
    "tests/unit needs no server and no process of Corral's: this test belongs to the folder of its part"
)
SERVERS = {"valkey-server", "redis-server", "redis-sentinel", "node"}


@pytest.fixture(scope="session")
def valkey() -> None:
    pytest.fail(ELSEWHERE, pytrace=False)


@pytest.fixture(scope="session")
def debian_redis() -> None:
    pytest.fail(ELSEWHERE, pytrace=False)


@pytest.fixture(scope="session")
def node_process() -> None:
    pytest.fail(ELSEWHERE, pytrace=False)


@pytest.fixture(autouse=True)
def no_server_is_started() -> Iterator[None]:
    """Refuse every server, and every process that runs a module of Corral."""
    real = subprocess.Popen.__init__

    def start(self: Any, args: Any, *rest: Any, **options: Any) -> None:
        words = [str(word) for word in ([args] if isinstance(args, str | Path) else args)]
        assert Path(words[0]).name not in SERVERS, ELSEWHERE
        assert not any(word.split(".")[0] == "corral" for word in words), ELSEWHERE
        real(self, args, *rest, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess.Popen, "__init__", start)
        yield
