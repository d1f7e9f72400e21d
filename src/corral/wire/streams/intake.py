"""The room's Intake: its own submit under a ledger."""

from corral.wire.intake import LedgerIntake
from corral.wire.place import Place
from corral.wire.streams.broker import StreamsBroker
from corral.wire.streams.keys import Keys

ROWS_AT = 6
"""Which argument of lua/submit.lua holds its rows."""


def streams_intake(place: Place) -> LedgerIntake:
    """Jobs into one queue, each once."""
    keys = Keys(place.namespace, place.queue)
    # '/' and not a second ':': no client gives a job such an id
    return LedgerIntake(place, StreamsBroker, lambda name: keys.ledger(name), ROWS_AT)
