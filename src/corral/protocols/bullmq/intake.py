"""The protocol's Intake: its own submit under a ledger."""

from corral.protocols.binding import Binding
from corral.protocols.bullmq.broker import BullmqBroker
from corral.protocols.bullmq.keys import Keys
from corral.protocols.intake import LedgerIntake

ROWS_AT = 1
"""Which argument of lua/submit.lua holds its envelopes: jobs with ids have one each."""


def bullmq_intake(binding: Binding) -> LedgerIntake:
    """Jobs into one queue, each once."""
    keys = Keys(binding.namespace, binding.queue)
    # '/' and not a second ':': no client gives a job such an id
    return LedgerIntake(binding, BullmqBroker, lambda name: keys.part(f"ledger:{name}"), ROWS_AT)
