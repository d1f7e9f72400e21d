"""The room's Intake: its own submit under a ledger."""

from corral.wire.bridgemq.broker import BridgemqBroker
from corral.wire.bridgemq.keys import Keys
from corral.wire.intake import LedgerIntake
from corral.wire.place import Place

ROWS_AT = 5
"""Which argument of lua/submit.lua holds its rows."""


def bridgemq_intake(place: Place) -> LedgerIntake:
    """Jobs into one queue, each once."""
    keys = Keys(place.namespace, place.queue)
    # '/' and not a second ':': no client gives a job such an id
    return LedgerIntake(place, BridgemqBroker, lambda name: keys.part(f"ledger:{name}"), ROWS_AT)
