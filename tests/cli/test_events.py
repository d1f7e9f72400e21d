"""`corral events`."""

import json
import signal

from corral import Corral
from tests.cli.conftest import Shell
from tests.support.servers import Server
from tests.support.shell import start


def test_the_tail_ends_when_its_output_is_closed(shell: Shell, url: str) -> None:
    shell("queue", "add", "mail", "greet")
    tail = start("events", "tail", "mail", "--from", "-", "--json", REDIS_URL=url)
    try:
        assert tail.stdout is not None
        assert tail.stderr is not None
        tail.stdout.readline()
        tail.stdout.close()
        assert tail.wait(30) in (0, 1), "1 where it was just writing"
        assert tail.stderr.read() == ""
    finally:
        tail.kill()
        tail.wait()


def test_events_are_printed_from_the_beginning_or_from_an_id(shell: Shell) -> None:
    for _ in range(2):
        shell("queue", "add", "mail", "greet")
    events = shell("events", "tail", "mail", "--from", "-", "--count", "4", "--json").documents
    assert [(event["kind"], event["job_id"]) for event in events] == [
        ("added", "1"),
        ("waiting", "1"),
        ("added", "2"),
        ("waiting", "2"),
    ]
    later = shell("events", "tail", "mail", "--from", events[1]["id"], "--count", "1")
    assert events[2]["id"] in later.out
    assert "added" in later.out
    assert len(later.out.splitlines()) == 1


def test_without_a_queue_the_events_of_every_queue_are_printed(shell: Shell) -> None:
    for queue in ("mail", "sums"):
        shell("queue", "add", queue, "greet")
    events = shell("events", "tail", "--from", "-", "--count", "4", "--json").documents
    assert sorted(event["queue"] for event in events) == ["mail", "mail", "sums", "sums"]


def test_without_a_protocol_the_events_of_every_protocol_are_printed(shell: Shell, server: Server) -> None:
    shell("queue", "add", "mail", "greet")
    shell("queue", "add", "jobs", "embed", "--protocol", "streams")
    shell("queue", "add", "mail", "greet", "--protocol", "bridgemq")
    with server.connect() as client:
        count = sum(client.xlen(log) for log in ("bull:mail:events", "jobs:events", "bridge:events"))
    events = shell("events", "tail", "--from", "-", "--count", str(count), "--json").documents
    assert {event["protocol"] for event in events} == {"bullmq", "streams", "bridgemq"}


def test_new_events_are_printed_as_they_come(shell: Shell, url: str) -> None:
    shell("queue", "add", "mail", "greet")
    tail = start("events", "tail", "mail", "--from", "-", "--json", REDIS_URL=url)
    assert tail.stdout is not None
    try:
        assert [json.loads(tail.stdout.readline())["kind"] for _ in range(2)] == ["added", "waiting"]
        shell("queue", "add", "mail", "greet")
        assert json.loads(tail.stdout.readline())["job_id"] == "2"
        tail.send_signal(signal.SIGINT)
        assert tail.wait(10) == 130
        assert tail.stderr is not None
        assert tail.stderr.read() == ""
    finally:
        tail.kill()


def test_a_reader_that_closes_the_pipe_causes_no_traceback(shell: Shell, url: str) -> None:
    app = Corral(url)
    app.sync(app.queue("mail").add_many([("greet", n) for n in range(3000)]))
    app.sync(app.close())
    app.sync.close()
    tail = start("events", "tail", "mail", "--from", "-", REDIS_URL=url)
    assert tail.stdout is not None
    assert tail.stderr is not None
    tail.stdout.readline()
    tail.stdout.close()
    assert tail.wait(20) == 1
    assert "Traceback" not in tail.stderr.read()
