"""The clock that follows the server's where this machine's is wrong."""

import pytest

from corral.store.clock import ServerClock

NOW = 1_700_000_000_000


class Machine:
    """A machine whose clock a test sets."""

    def __init__(self) -> None:
        self.now = NOW
        self.warnings: list[int] = []
        self.clock = ServerClock(lambda: self.now, self.warnings.append)

    def asks(self, server_ms: int, took_ms: int = 0) -> None:
        """The server's time comes as the reply to what took so long."""
        sent_at = self.now
        self.now += took_ms
        self.clock.compare(server_ms, sent_at)


@pytest.mark.parametrize("off", [0, 999, -1000])
def test_a_clock_within_a_second_of_the_servers_is_used_as_it_is(off: int) -> None:
    machine = Machine()
    machine.asks(NOW + off)
    assert machine.clock() == NOW
    assert machine.warnings == []


@pytest.mark.parametrize("off", [1001, -600_000])
def test_a_clock_further_off_follows_the_servers_and_warns_once(off: int) -> None:
    machine = Machine()
    machine.asks(NOW + off)
    machine.now += 5000
    machine.asks(NOW + off + 5000)
    assert machine.clock() == NOW + off + 5000
    assert machine.warnings == [-off]


def test_a_clock_that_was_set_right_is_used_again() -> None:
    machine = Machine()
    machine.asks(NOW - 600_000)
    machine.now -= 600_000
    machine.asks(machine.now)
    assert machine.clock() == NOW - 600_000


def test_a_slow_reply_changes_nothing() -> None:
    machine = Machine()
    machine.asks(NOW + 5000, took_ms=400)
    assert machine.clock() == NOW + 5000 + 200
    machine.asks(NOW, took_ms=501)
    assert machine.clock() - machine.now == 4800


def test_a_server_that_does_not_say_its_time_is_not_asked_again_at_once() -> None:
    machine = Machine()
    assert machine.clock.is_outdated
    machine.clock.compare(None, NOW)
    assert not machine.clock.is_outdated
    assert machine.clock() == NOW
