"""The protocol's Intake: its own submit under a ledger."""

from corral.protocols.binding import Binding
from corral.protocols.bridgemq.broker import BridgemqBroker
from corral.protocols.bridgemq.keys import Keys
from corral.protocols.intake import LedgerIntake

ROWS_AT = 5
"""Which argument of lua/submit.lua holds its rows."""


def bridgemq_intake(binding: Binding) -> LedgerIntake:
    """Jobs into one queue, each once."""
    keys = Keys(binding.namespace, binding.queue)
    # '/' and not a second ':': no client gives a job such an id
    return LedgerIntake(binding, BridgemqBroker, lambda name: keys.part(f"ledger:{name}"), ROWS_AT)
