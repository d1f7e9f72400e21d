"""The guard of this folder: no server fixture and no server process."""

import subprocess
import sys

import pytest

from tests.support.servers import start_valkey


@pytest.mark.parametrize("fixture", ["server", "url", "store", "redis7", "node"])
def test_server_fixtures_fail(request: pytest.FixtureRequest, fixture: str) -> None:
    with pytest.raises(pytest.fail.Exception, match="tests/unit needs no server"):
        request.getfixturevalue(fixture)


def test_server_processes_fail() -> None:
    with pytest.raises(AssertionError, match="tests/unit needs no server"):
        start_valkey()
    with pytest.raises(AssertionError, match="tests/unit needs no server"):
        subprocess.run([sys.executable, "-m", "corral.cli", "worker", "app:app"], check=False)
