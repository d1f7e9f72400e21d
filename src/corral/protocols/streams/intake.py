"""The protocol's Intake: its own submit under a ledger."""

from corral.protocols.binding import Binding
from corral.protocols.intake import LedgerIntake
from corral.protocols.streams.broker import StreamsBroker
from corral.protocols.streams.keys import Keys

ROWS_AT = 6
"""Which argument of lua/submit.lua holds its rows."""


def streams_intake(binding: Binding) -> LedgerIntake:
    """Jobs into one queue, each once."""
    keys = Keys(binding.namespace, binding.queue)
    # '/' and not a second ':': no client gives a job such an id
    return LedgerIntake(binding, StreamsBroker, lambda name: keys.ledger(name), ROWS_AT)
