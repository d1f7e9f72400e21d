"""The room's Intake: its own submit under a ledger."""

from corral.wire.bullmq.broker import BullmqBroker
from corral.wire.bullmq.keys import Keys
from corral.wire.intake import LedgerIntake
from corral.wire.place import Place

ROWS_AT = 1
"""Which argument of lua/submit.lua holds its envelopes: jobs with ids have one each."""


def bullmq_intake(place: Place) -> LedgerIntake:
    """Jobs into one queue, each once."""
    keys = Keys(place.namespace, place.queue)
    # '/' and not a second ':': no client gives a job such an id
    return LedgerIntake(place, BullmqBroker, lambda name: keys.part(f"ledger:{name}"), ROWS_AT)
