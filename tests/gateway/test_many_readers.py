"""Many readers: every event to every one, in order; and after abrupt ends nothing is left behind."""

import asyncio
import gc
import socket
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import redis
from bench.gateway_tails import Reader, measure, report

from tests.gateway.conftest import Open
from tests.support.gateway import Gateway
from tests.support.gateway_process import GatewayProcess
from tests.support.polling import eventually
from tests.support.servers import Server

RESET = b"\x01\0\0\0\0\0\0\0"
"""A zero linger: closing sends a reset."""


def is_whole(readers: list[Reader], asked: Namespace) -> bool:
    count = int(asked.rate * asked.seconds)
    return all(reader.numbers == list(range(len(range(reader.job, count, asked.jobs)))) for reader in readers)


async def test_every_reader_hears_every_event_in_order(opened: Open, server: Server) -> None:
    gateway = opened(tails_per_client=1000, sweep_s=1.0)
    asked = Namespace(jobs=40, readers=5, rate=100.0, seconds=2.0)
    readers = await measure(gateway.port, server.url, asked)
    assert is_whole(readers, asked)


@pytest.mark.faults
@pytest.mark.timeout(300)
async def test_five_thousand_readers_hear_every_event_soon(server: Server) -> None:
    limits = {"CORRAL_TAILS_PER_CLIENT": "100000", "CORRAL_MAX_TAILS": "100000"}
    gateway = GatewayProcess(server.url, **limits).ready()
    asked = Namespace(jobs=1000, readers=5, rate=500.0, seconds=20.0)
    try:
        readers = await measure(gateway.port, server.url, asked)
    finally:
        gateway.kill()
    assert is_whole(readers, asked)
    assert report(readers, asked)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def break_off(gateway: Gateway, job_id: str, count: int) -> None:
    """Open so many tails and reset each, half of them after they were greeted."""
    for number in range(count):
        with socket.create_connection(("127.0.0.1", gateway.port), timeout=10) as link:
            link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            link.sendall(f"GET /v1/jobs/{job_id}/events HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            if number % 2:
                assert link.recv(1000)


def left(gateway: Gateway) -> tuple[Any, ...]:
    """What a gateway holds: tails, requests, connections, its loop's own works."""
    hall, state = gateway.hall, gateway.server.server_state
    works = [task for task in asyncio.all_tasks(hall._publishing.get_loop()) if not task.done()]
    return (hall.tails.count, hall._tails_of.total(), len(state.tasks), len(state.connections), len(works))


def rehearse(gateway: Gateway, client: redis.Redis, rounds: int, count: int) -> list[int]:
    """How many objects there are after each round."""
    job_id = gateway.submit()
    gateway.client.close()
    break_off(gateway, job_id, 20)
    assert eventually(lambda: left(gateway)[:4] == (0, 0, 0, 0), 30)
    before, files, links = left(gateway), open_files(), client.info("clients")["connected_clients"]
    objects = []
    for _ in range(rounds):
        break_off(gateway, job_id, count)
        assert eventually(lambda: left(gateway) == before, 60), (left(gateway), before)
        gc.collect()
        objects.append(len(gc.get_objects()))
    assert eventually(lambda: open_files() <= files + 2, 30), (open_files(), files)
    assert client.info("clients")["connected_clients"] <= links + 1
    return objects


def test_clients_that_break_off_leave_nothing_behind(opened: Open, client: redis.Redis) -> None:
    first, *_, last = rehearse(opened(), client, rounds=3, count=100)
    # one object kept of each would be 200 more
    assert last - first < 150


@pytest.mark.faults
@pytest.mark.timeout(600)
def test_ten_thousand_clients_that_break_off_leave_nothing_behind(opened: Open, client: redis.Redis) -> None:
    first, *_, last = rehearse(opened(), client, rounds=10, count=1000)
    assert last - first < 1000
