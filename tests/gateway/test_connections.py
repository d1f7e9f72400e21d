"""Limits of connections and requests: what a client sends, how much of it, and how slowly."""

import json
import socket
import time
from pathlib import Path

import pytest
import redis

from tests.gateway.conftest import OpenGateway
from tests.support.gateway import KEYS, KEYS_JSON, Gateway, problem_of

HEAD = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
TRAILERS = b"a:\r\n" * 16_384


def connect(gateway: Gateway, seconds: float = 5.0) -> socket.socket:
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
