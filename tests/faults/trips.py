"""The kinds of round trips a worker makes, as commands on the wire, and the faults injected into them."""

from collections.abc import Callable
from enum import Enum

from corral.protocols.bridgemq.keys import BridgemqKeys
from corral.protocols.bridgemq.scripts import SCRIPTS as BRIDGEMQ
from corral.protocols.bullmq.keys import BullmqKeys
from corral.protocols.bullmq.scripts import SCRIPTS as BULLMQ
from corral.protocols.streams.scripts import SCRIPTS as STREAMS
from tests.support.proxy import Command, Proxy, ProxyFault, Rule, runs_script

Matches = Callable[[Command], bool]

ENDLESS = 1_000_000_000

PLACES = (0.0, 0.001, 0.5, 1.0)
"""Where a command or a reply is cut: before, after its first bytes, in its middle, before its last byte."""

CUTS = (ProxyFault.CUT_BEFORE, ProxyFault.CUT_INSIDE, ProxyFault.SWALLOW, ProxyFault.CUT_REPLY)
"""The client sees the connection break."""

SILENCES = 3
"""How many replies never come: each costs a timeout."""


class Trip(Enum):
    CLAIM = "claims only"
    SETTLE = "settles only"
    BOTH = "settles and claims"


_SCRIPTS = {"bullmq": BULLMQ, "streams": STREAMS, "bridgemq": BRIDGEMQ}
_OWN_KEYS = {
    "bullmq": len(BullmqKeys("bull", "").fixed),
    "streams": 4,
    "bridgemq": len(BridgemqKeys("bridge", "").fixed) + 1,
}
"""Keys of a turn that settles nothing; each settled job adds its own."""
_WANT = {"bullmq": 3, "streams": 6, "bridgemq": 5}
"""Which argument of a turn says how many are wanted."""


def is_trip(protocol: str, trip: Trip) -> Matches:
    """Matches turns of one kind."""
    is_turn = runs_script(_SCRIPTS[protocol]["turn"].sha)

    def matches(command: Command) -> bool:
        if not is_turn(command):
            return False
        keys = int(command[2])
        settles, claims = keys > _OWN_KEYS[protocol], int(command[3 + keys + _WANT[protocol]]) > 0
        return (settles, claims) == {
            Trip.CLAIM: (False, True),
            Trip.SETTLE: (True, False),
            Trip.BOTH: (True, True),
        }[trip]

    return matches


def is_adoption(protocol: str) -> Matches:
    """Match the query for the claims of a lost trip."""
    return runs_script(_SCRIPTS[protocol]["adopt"].sha)


def every(number: int, matches: Matches) -> Matches:
    """Matches each so-many-th of what matches."""
    seen = 0

    def counted(command: Command) -> bool:
        nonlocal seen
        if not matches(command):
            return False
        seen += 1
        return seen % number == 0

    return counted


def cut_every(proxy: Proxy, number: int, matches: Matches, fault: ProxyFault) -> Rule:
    """Let each so-many-th command that matches meet this fault, cut at a place that changes."""
    times = SILENCES if fault is ProxyFault.SILENCE else ENDLESS
    return proxy.rule(every(number, matches), fault, times, PLACES)


def cuts(*numbers: int) -> list[tuple[ProxyFault, int]]:
    """(fault, each so-many-th) for every cut, and one silence."""
    return [*((fault, number) for fault in CUTS for number in numbers), (ProxyFault.SILENCE, numbers[0])]
