"""Records of the attempts that a job made in vain, to and from the wire; the same in every protocol."""

import msgspec

from corral.core.job import FailedAttempt
from corral.core.outcome import Dead, Retry, Settlement, Unhandled
from corral.protocols.wire import clean

MOST_ATTEMPTS = 20
MOST_MESSAGE = 200
MOST_NAME = 100
_RECORDS = msgspec.json.Decoder(tuple[FailedAttempt, ...])


def encode_attempts(settlement: Settlement) -> bytes:
    """Return the records of a job with that of the attempt that has ended; empty where it did not fail."""
    job, outcome = settlement.claim.job, settlement.outcome
    if not isinstance(outcome, Retry | Dead | Unhandled):
        return b""
    attempt = FailedAttempt(
        number=job.attempts_made + 1,
        started_at=job.started_at,
        ended_at=settlement.at,
        worker=None if job.worker is None else clean(job.worker)[:MOST_NAME],
        error="" if isinstance(outcome, Unhandled) else clean(outcome.error)[:MOST_NAME],
        message=clean(outcome.reason)[:MOST_MESSAGE],
    )
    return msgspec.json.encode([*job.failed_attempts, attempt][-MOST_ATTEMPTS:])


def decode_attempts(raw: bytes | None) -> tuple[FailedAttempt, ...]:
    """Return the records of a job; none where another client wrote something else."""
    if not raw:
        return ()
    try:
        return _RECORDS.decode(raw)
    except msgspec.DecodeError:
        return ()
