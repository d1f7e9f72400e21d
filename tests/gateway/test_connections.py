"""Limits of connections and requests: what a client sends, how much of it, and how slowly."""

import json
import socket
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
import redis

from corral.gateway.connection import _network
from tests.gateway.conftest import OpenGateway
from tests.support.gateway import KEYS, KEYS_JSON, Gateway, problem_of
from tests.support.polling import eventually

HEAD = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
TRAILERS = b"a:\r\n" * 16_384


def connect(gateway: Gateway, seconds: float = 30.0) -> socket.socket:
    return socket.create_connection(("127.0.0.1", gateway.port), timeout=seconds)


def receive(connection: socket.socket) -> bytes:
    """Return what is received until the gateway closes the connection, or one response where it does not."""
    received = b""
    while chunk := connection.recv(65_536):
        received += chunk
        if b"\r\n\r\n" in received and b"connection: close" not in received.lower():
            break
    return received


def send_raw(gateway: Gateway, request: bytes) -> bytes:
    """Send these bytes on a connection of their own; return the response."""
    with connect(gateway) as connection:
        connection.sendall(request)
        return receive(connection)


def resident_mb() -> float:
    """Return the memory of this process, in which the gateway runs."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


# -- size ---------------------------------------------------------------------------------------------------


def test_a_body_that_is_too_large_is_refused_before_it_has_arrived(
    open_gateway: OpenGateway, client: redis.Redis
) -> None:
    gateway = open_gateway(max_body_bytes=2000)
    response = send_raw(gateway, HEAD + b"Content-Length: 5000000\r\n\r\n{")
    assert response.startswith(b"HTTP/1.1 413 ")
    assert b"urn:corral:problem:body-too-large" in response
    chunked = CHUNKED + b"400\r\n" + b"x" * 1024 + b"\r\n"
    response = send_raw(gateway, chunked + b"400\r\n" + b"x" * 1024 + b"\r\n")
    assert b"urn:corral:problem:body-too-large" in response
    assert client.dbsize() == 0


def test_a_body_that_does_not_arrive_times_out(open_gateway: OpenGateway) -> None:
    gateway = open_gateway(body_timeout_s=0.2)
    response = send_raw(gateway, HEAD + b"Connection: close\r\nContent-Length: 50\r\n\r\n{")
    assert response.startswith(b"HTTP/1.1 408 ")


def test_headers_that_are_too_many_or_too_large_are_refused(open_gateway: OpenGateway) -> None:
    gateway = open_gateway(max_headers=30, max_header_bytes=4000)
    many = {f"X-{n}": "1" for n in range(30)}
    for headers in (many, {"X-Big": "x" * 4000}):
        response = gateway.client.get("/livez", headers=headers)
        assert problem_of(response) == (431, "headers-too-large")
    assert gateway.client.get("/livez?" + "q" * 4000).status_code == 431


def test_a_head_without_end_is_refused(gateway: Gateway) -> None:
    response = send_raw(gateway, b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 66_000)
    assert response.startswith(b"HTTP/1.1 431 ")


def test_a_head_that_does_not_arrive_times_out(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corral.gateway.connection.HEAD_TIMEOUT_S", 0.2)
    began = time.monotonic()
    response = send_raw(gateway, b"GET /livez HTTP/1.1\r\nHost:")
    assert response.startswith(b"HTTP/1.1 408 ")
    assert time.monotonic() - began < 4


def test_invalid_http_is_a_problem(gateway: Gateway) -> None:
    response = send_raw(gateway, b"MEOW / HTTP/1.1\r\n\r\n")
    head, _, body = response.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"content-type: application/problem+json" in head
    assert json.loads(body)["type"] == "urn:corral:problem:malformed-request"


def test_a_pipelined_request_behind_a_large_one_is_not_counted_with_it(gateway: Gateway) -> None:
    body = json.dumps({"task": "chat", "payload": {"text": "x" * 90_000}}).encode()
    request = HEAD + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    with connect(gateway) as connection:
        connection.sendall(request + b"GET /livez HTTP/1.1\r\n")
        connection.sendall(b"Host: localhost\r\nConnection: close\r\n\r\n")
        responses = b""
        while chunk := connection.recv(65_536):
            responses += chunk
    assert responses.count(b"HTTP/1.1 202 ") == responses.count(b"HTTP/1.1 200 ") == 1


# -- trailers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trailer", [TRAILERS, b"a" * len(TRAILERS)], ids=["many", "one without end"])
def test_trailers_take_no_memory(open_gateway: OpenGateway, trailer: bytes) -> None:
    gateway = open_gateway(keys=KEYS_JSON)
    before = resident_mb()
    with connect(gateway) as connection:
        connection.sendall(CHUNKED + b"0\r\n")
        for _ in range(64):
            connection.sendall(trailer)
        assert receive(connection).startswith(b"HTTP/1.1 401 ")
    # without limits 4 MB of lines take 90 MB
    assert resident_mb() - before < 20


@pytest.mark.parametrize("trailer", [TRAILERS, b"a" * len(TRAILERS)], ids=["many", "one without end"])
def test_trailers_count_as_a_part_of_the_request(open_gateway: OpenGateway, trailer: bytes) -> None:
    gateway = open_gateway(max_body_bytes=2000)
    with connect(gateway) as connection:
        connection.sendall(CHUNKED + b"2\r\n{}\r\n0\r\n" + trailer[:60_000])
        connection.sendall(trailer[:20_000])
        response = receive(connection)
    assert response.startswith(b"HTTP/1.1 413 ")
    assert response.count(b"HTTP/1.1") == 1


def test_trailers_do_not_act_as_headers(open_gateway: OpenGateway, client: redis.Redis) -> None:
    gateway = open_gateway(keys=KEYS_JSON)
    body = b'{"task": "chat", "payload": {}}'
    key = b"Authorization: Bearer " + KEYS["submit"].encode()
    # the trailer arrives before the app runs: both are in one read
    chunks = b"%x\r\n%s\r\n0\r\n" % (len(body), body)
    response = send_raw(gateway, CHUNKED + chunks + key + b"\r\n\r\n")
    assert response.startswith(b"HTTP/1.1 401 ")
    idempotent = CHUNKED.replace(b"\r\n", b"\r\n" + key + b"\r\n", 1)
    response = send_raw(gateway, idempotent + chunks + b"Idempotency-Key: trailing\r\n\r\n")
    assert response.startswith(b"HTTP/1.1 202 ")
    assert not client.exists("idempotency:trailing")


# -- hosts --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keys", [None, KEYS_JSON])
def test_two_host_headers_are_refused(open_gateway: OpenGateway, keys: str | None) -> None:
    key = b"Authorization: Bearer " + KEYS["admin"].encode()
    hosts = b"Host: localhost\r\nHost: localhost\r\n"
    response = send_raw(open_gateway(keys=keys), b"GET /v1/jobs HTTP/1.1\r\n" + hosts + key + b"\r\n\r\n")
    assert response.startswith(b"HTTP/1.1 400 ")


# -- early answers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [b"Content-Length: 5000000", b"Transfer-Encoding: chunked"])
def test_a_connection_is_closed_after_an_early_answer_which_can_be_read(
    open_gateway: OpenGateway, length: bytes
) -> None:
    gateway = open_gateway(keys=KEYS_JSON)
    with connect(gateway) as connection:
        connection.sendall(HEAD + length + b"\r\n\r\n")
        for _ in range(8):
            # a client that sends its whole body first is not disturbed by a reset
            connection.sendall(b"ffff\r\n" + b"x" * 65_535 + b"\r\n")
        response = receive(connection)
    assert response.startswith(b"HTTP/1.1 401 ")
    assert b"connection: close" in response


def test_a_connection_whose_request_was_complete_stays_open(open_gateway: OpenGateway) -> None:
    gateway = open_gateway(keys=KEYS_JSON)
    with connect(gateway) as connection:
        for _ in range(2):
            connection.sendall(HEAD + b"Content-Length: 2\r\n\r\n{}")
            response = receive(connection)
            assert response.startswith(b"HTTP/1.1 401 ")
            assert b"connection: close" not in response


def test_what_follows_an_upgrade_is_not_taken_for_a_request(gateway: Gateway, client: redis.Redis) -> None:
    inner = b'{"task": "chat", "payload": {}}'
    smuggled = HEAD + b"Content-Length: %d\r\n\r\n%s" % (len(inner), inner)
    upgrade = b"Connection: upgrade\r\nUpgrade: h2c\r\nContent-Length: %d\r\n\r\n" % len(smuggled)
    with connect(gateway) as connection:
        connection.sendall(b"POST /v1/jobs/x/cancel HTTP/1.1\r\nHost: localhost\r\n" + upgrade)
        connection.sendall(smuggled)
        response = receive(connection)
    assert response.startswith(b"HTTP/1.1 404 ")
    assert response.count(b"HTTP/1.1") == 1
    assert not client.keys("job:*")


# -- time ---------------------------------------------------------------------------------------------------


def trickle(connection: socket.socket, piece: bytes, seconds: float = 5.0) -> bytes:
    """Send this piece every 50 ms until there is a response; return it, or nothing when the time is up."""
    connection.settimeout(0.05)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with suppress(TimeoutError):
            return connection.recv(65_536)
        connection.sendall(piece)
    return b""


def test_a_body_that_trickles_in_times_out(open_gateway: OpenGateway) -> None:
    gateway = open_gateway(body_timeout_s=0.3)
    for head, piece in (
        (HEAD + b"Content-Length: 500\r\n\r\n", b" "),
        (CHUNKED, b"1\r\n \r\n"),
        (CHUNKED + b"0\r\n", b"a:\r\n"),
    ):
        with connect(gateway) as connection:
            connection.sendall(head)
            assert trickle(connection, piece).startswith(b"HTTP/1.1 408 ")


def test_a_head_that_trickles_in_times_out(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corral.gateway.connection.HEAD_TIMEOUT_S", 0.3)
    with connect(gateway) as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\n")
        assert trickle(connection, b"a:\r\n").startswith(b"HTTP/1.1 408 ")


def test_line_breaks_do_not_keep_an_answered_connection_open(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("corral.gateway.connection.HEAD_TIMEOUT_S", 0.3)
    with connect(gateway) as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert receive(connection).startswith(b"HTTP/1.1 200 ")
        assert trickle(connection, b"\r\n").startswith(b"HTTP/1.1 408 ")


def test_a_tail_whose_request_has_no_end_is_closed(open_gateway: OpenGateway) -> None:
    gateway = open_gateway(body_timeout_s=0.3)
    path = f"/v1/jobs/{gateway.submit()}/events".encode()
    with connect(gateway) as connection:
        connection.sendall(b"GET %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n" % path)
        while connection.recv(65_536):
            pass
    assert eventually(lambda: gateway.state.tails.count == 0)


def test_a_request_behind_a_slow_response_does_not_time_out(open_gateway: OpenGateway) -> None:
    """Its body is not read before the earlier request has its response."""
    gateway = open_gateway(body_timeout_s=0.2)
    body = b'{"task": "chat", "payload": {}}'
    with connect(gateway) as connection:
        first = HEAD + b"Prefer: wait=1\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
        last = HEAD + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
        connection.sendall(first + last)
        connection.sendall(body)
        responses = b""
        while chunk := connection.recv(65_536):
            responses += chunk
    assert responses.count(b"HTTP/1.1 202 ") == 2


# -- number of connections ----------------------------------------------------------------------------------

SLOW_HEADS = {
    "nothing": b"",
    "half a head": b"GET /livez HTTP/1.1\r\nHost:",
    "half a body": HEAD + b"Content-Length: 50\r\n\r\n{",
}


@pytest.mark.parametrize("limit", ["connections_per_address", "max_connections"])
@pytest.mark.parametrize("case", SLOW_HEADS)
def test_slow_clients_do_not_keep_others_out(open_gateway: OpenGateway, limit: str, case: str) -> None:
    gateway = open_gateway(**{limit: 20})
    with ExitStack() as stack:
        for _ in range(30):
            connection = stack.enter_context(connect(gateway))
            connection.sendall(SLOW_HEADS[case])
        for _ in range(3):
            with connect(gateway) as connection:
                connection.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert receive(connection).startswith(b"HTTP/1.1 200 ")
        assert len(gateway.server.server_state.connections) <= 20


@pytest.mark.parametrize("limit", ["connections_per_address", "max_connections"])
def test_connections_in_use_are_not_closed_for_others(open_gateway: OpenGateway, limit: str) -> None:
    gateway = open_gateway(**{limit: 3})
    job_id = gateway.submit()
    gateway.client.close()
    tails = [gateway.tail(job_id) for _ in range(3)]
    with connect(gateway) as connection:
        response = receive(connection)
    assert response.startswith(b"HTTP/1.1 503 ")
    assert b"urn:corral:problem:too-many-connections" in response
    assert b"retry-after: 1" in response
    for tail in tails:
        assert tail.until("queued")
    tails.pop().socket.close()

    def is_served() -> bool:
        with connect(gateway) as connection:
            connection.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            return b"HTTP/1.1 200 " in receive(connection)

    assert eventually(is_served)
    for tail in tails:
        tail.socket.close()


def test_an_idle_connection_makes_room_for_a_new_one(open_gateway: OpenGateway) -> None:
    gateway = open_gateway(max_connections=2)
    request = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with connect(gateway) as idle, connect(gateway) as other:
        for connection in (idle, other):
            connection.sendall(request)
            assert receive(connection).startswith(b"HTTP/1.1 200 ")
        assert send_raw(gateway, request).startswith(b"HTTP/1.1 200 ")


def test_the_networks_of_ipv6_are_counted_together() -> None:
    assert _network("2001:db8::1") == _network("2001:db8::ffff:1") != _network("2001:db8:0:1::1")
    assert _network("10.0.0.1") != _network("10.0.0.2")


def test_connections_leave_nothing_behind_in_the_limits(open_gateway: OpenGateway) -> None:
    gateway = open_gateway(connections_per_address=5)
    for case in [*SLOW_HEADS.values()] * 10:
        with connect(gateway) as connection:
            connection.sendall(case)
    gateway.client.close()
    limits = gateway.state.connections
    assert eventually(lambda: not limits._connections)
    assert not limits._waiting
    assert not limits._waiting_by_address
    assert not limits._counts
