"""Many readers receive every event in order, and leave nothing behind when they disconnect."""

import asyncio
import gc
import socket
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import redis
from bench.gateway_tails import Reader, measure, report

from tests.gateway.conftest import OpenGateway
from tests.support.gateway import Gateway
from tests.support.gateway_process import GatewayProcess
from tests.support.polling import eventually
from tests.support.servers import Server

RESET = b"\x01\0\0\0\0\0\0\0"
"""A zero linger: closing sends a reset."""


def have_all_events(readers: list[Reader], load: Namespace) -> bool:
    count = int(load.rate * load.seconds)
    return all(reader.numbers == list(range(len(range(reader.job, count, load.jobs)))) for reader in readers)


async def test_every_reader_receives_every_event_in_order(open_gateway: OpenGateway, server: Server) -> None:
    gateway = open_gateway(tails_per_client=1000, sweep_s=1.0)
    load = Namespace(jobs=40, readers=5, rate=100.0, seconds=2.0)
    readers = await measure(gateway.port, server.url, load)
    assert have_all_events(readers, load)


@pytest.mark.faults
@pytest.mark.timeout(300)
async def test_five_thousand_readers_receive_every_event_soon(server: Server) -> None:
    limits = {"CORRAL_TAILS_PER_CLIENT": "100000", "CORRAL_MAX_TAILS": "100000"}
    gateway = GatewayProcess(server.url, **limits).ready()
    load = Namespace(jobs=1000, readers=5, rate=500.0, seconds=20.0)
    try:
        readers = await measure(gateway.port, server.url, load)
    finally:
        gateway.kill()
    assert have_all_events(readers, load)
    assert report(readers, load)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def reset_tails(gateway: Gateway, job_id: str, count: int) -> None:
    """Open so many tails and reset each, half of them after `hello`."""
    for number in range(count):
        with socket.create_connection(("127.0.0.1", gateway.port), timeout=10) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            connection.sendall(f"GET /v1/jobs/{job_id}/events HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            if number % 2:
                assert connection.recv(1000)


def resources(gateway: Gateway) -> tuple[Any, ...]:
    """Return how many tails, requests, connections and tasks a gateway has."""
    state, server = gateway.state, gateway.server.server_state
    tasks = [task for task in asyncio.all_tasks(state._publishing.get_loop()) if not task.done()]
    tails = (state.tails.count, state._tails_by_client.total())
    return (*tails, len(server.tasks), len(server.connections), len(tasks))


def count_objects(gateway: Gateway, client: redis.Redis, rounds: int, count: int) -> list[int]:
    """Return the number of objects after each round of resets."""
    job_id = gateway.submit()
    gateway.client.close()
    reset_tails(gateway, job_id, 20)
    assert eventually(lambda: resources(gateway)[:4] == (0, 0, 0, 0), 30)
    before, files, connections = resources(gateway), open_files(), client.info("clients")["connected_clients"]
    objects = []
    for _ in range(rounds):
        reset_tails(gateway, job_id, count)
        assert eventually(lambda: resources(gateway) == before, 60), (resources(gateway), before)
        gc.collect()
        objects.append(len(gc.get_objects()))
    assert eventually(lambda: open_files() <= files + 2, 30), (open_files(), files)
    assert client.info("clients")["connected_clients"] <= connections + 1
    return objects


def test_clients_that_reset_their_connections_leave_nothing_behind(
    open_gateway: OpenGateway, client: redis.Redis
) -> None:
    first, *_, last = count_objects(open_gateway(), client, rounds=3, count=100)
    # one leaked object per tail would be 200 more
    assert last - first < 150


@pytest.mark.faults
@pytest.mark.timeout(600)
def test_ten_thousand_resets_leave_nothing_behind(open_gateway: OpenGateway, client: redis.Redis) -> None:
    first, *_, last = count_objects(open_gateway(), client, rounds=10, count=1000)
    assert last - first < 1000
