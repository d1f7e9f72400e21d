"""SIGKILL of gateway and worker at any moment: a job is created as a whole or not at all, and ends once."""

import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import httpx2
import pytest
import redis

from tests.support.foreign_client_streams import TERMINAL, story
from tests.support.gateway_process import GatewayProcess, start_worker
from tests.support.polling import block, eventually
from tests.support.servers import Server

ADDED_FIELDS = {b"idempotency_key", b"progress", b"progress_message"}
FIELDS = {
    *(b"job_id", b"task", b"payload", b"status", b"created_ts"),
    *(b"updated_ts", b"ttl_s", b"result", b"error"),
}


def check_consistent(client: redis.Redis) -> None:
    """Check that each job has all its keys and each hash all its fields."""
    # read at once: where the worker was killed, the gateway continues
    keys = client.keys("job:*")
    hashes = {key for key in keys if key.count(b":") == 1}
    streams = {key.removesuffix(b":events") for key in keys if key.endswith(b":events")}
    assert hashes == streams
    for key in hashes:
        assert set(client.hkeys(key)) - ADDED_FIELDS == FIELDS
        assert client.ttl(key) > 0
        assert client.ttl(key + b":events") > 0
    queued = {fields[b"job_id"] for _, fields in client.xrange("jobs:stream")}
    for key in hashes:
        if client.hget(key, "status") in (b"queued", b"running"):
            assert key.removeprefix(b"job:") in queued


class Client(threading.Thread):
    """Creates jobs under its own keys, repeats each until it is accepted, and then once more."""

    def __init__(self, number: int, count: int, url: Callable[[], str]) -> None:
        super().__init__(daemon=True)
        self._keys = [f"client-{number}-{n}" for n in range(count)]
        self._url = url
        self.accepted: dict[str, set[str]] = {key: set() for key in self._keys}

    def run(self) -> None:
        for key in self._keys:
            for _ in range(2):
                assert eventually(partial(self._is_accepted, key), 180, pause=0.05)

    def _is_accepted(self, key: str) -> bool:
        with suppress(httpx2.HTTPError):
            return self._create(key)
        return False

    def _create(self, key: str) -> bool:
        response = httpx2.post(
            f"{self._url()}/v1/jobs",
            json={"task": "embed", "payload": {"n": len(key)}},
            headers={"Idempotency-Key": key},
            timeout=3,
        )
        if response.status_code != 202:
            return False
        self.accepted[key].add(response.json()["job_id"])
        return True


def is_pending(client: redis.Redis) -> bool:
    """Return whether a worker holds a job."""
    with suppress(redis.ResponseError):  # the group does not exist yet
        return bool(client.xpending("jobs:stream", "workers")["pending"])
    return False


def accepted_by(threads: list[Client]) -> int:
    return sum(bool(ids) for thread in threads for ids in thread.accepted.values())


def kill_in_turns(server: Server, client: redis.Redis, kills: int, clients: int, count: int) -> int:
    """Kill the gateway and the worker in turns under load; return how often."""
    randomness = random.Random(4)
    gateway = GatewayProcess(server.url)
    worker = start_worker(server.url)
    threads = [Client(number, count, lambda: gateway.url) for number in range(clients)]
    done = 0
    try:
        gateway.ready()
        for thread in threads:
            thread.start()
        while done < kills and any(thread.is_alive() for thread in threads):
            if done % 2:
                assert eventually(lambda: is_pending(client), 60), "the worker holds no job"
                block(randomness.uniform(0, 0.05))
                worker.kill()
                worker.wait()
                check_consistent(client)
                worker = start_worker(server.url)
            else:
                least = accepted_by(threads) + 1
                assert eventually(lambda least=least: accepted_by(threads) >= least, 60), (
                    "no job was accepted"
                )
                block(randomness.uniform(0, 0.05))
                gateway.kill()
                check_consistent(client)
                gateway = GatewayProcess(server.url, port=gateway.port)
                gateway.ready()
            done += 1
        for thread in threads:
            thread.join(180)
            assert not thread.is_alive()
        check_ends(client, [thread.accepted for thread in threads])
    finally:
        gateway.kill()
        worker.kill()
        worker.wait()
    return done


def check_ends(client: redis.Redis, accepted: list[dict[str, set[str]]]) -> None:
    """Check that each key has one job, that there are no others, and that each ended once."""
    by_key: dict[str, Any] = {key: ids for keys in accepted for key, ids in keys.items()}
    assert all(len(ids) == 1 for ids in by_key.values())
    jobs = {next(iter(ids)) for ids in by_key.values()}
    assert len(jobs) == len(by_key)
    for key, ids in by_key.items():
        assert client.get(f"idempotency:{key}").decode() in ids
    assert eventually(lambda: all(client.hget(f"job:{job}", "status") == b"done" for job in jobs), 60)
    assert {key.decode().removeprefix("job:") for key in client.keys("job:*") if key.count(b":") == 1} == jobs
    for job in jobs:
        kinds = story(client, job)
        assert sum(kind in TERMINAL for kind in kinds) == 1, kinds
        assert (kinds[0], kinds[-1]) == ("queued", "done")
    check_consistent(client)


def test_jobs_survive_a_gateway_and_a_worker_that_are_killed(server: Server, client: redis.Redis) -> None:
    assert kill_in_turns(server, client, kills=2, clients=2, count=25) == 2


@pytest.mark.faults
@pytest.mark.timeout(600)
def test_jobs_survive_many_kills(server: Server, client: redis.Redis) -> None:
    assert kill_in_turns(server, client, kills=24, clients=6, count=250) >= 12


def test_several_processes_serve_one_address_and_stop_on_a_signal(
    server: Server, client: redis.Redis
) -> None:
    gateway = GatewayProcess(server.url, workers=2).ready()
    try:
        responses = [
            httpx2.post(f"{gateway.url}/v1/jobs", json={"task": "embed", "payload": {"n": n}}, timeout=10)
            for n in range(20)
        ]
        assert [response.status_code for response in responses] == [202] * 20
        assert client.xlen("jobs:stream") == 20
        gateway.process.terminate()
        assert gateway.process.wait(20) == 0
    finally:
        gateway.kill()


def test_without_keys_the_command_refuses_an_open_address(server: Server) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "corral.cli", "gateway", "--host", "0.0.0.0"],
        env={**os.environ, "REDIS_URL": server.url},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "without keys the gateway listens on loopback only" in done.stderr
