"""What an error's own numbers and codes say: will it pass (True), will it not (False), or nothing (None)."""

import errno
from collections.abc import Callable
from contextlib import suppress
from typing import Any

Detail = Callable[[Any], bool | None]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ERRNOS = frozenset(
    getattr(errno, name)
    for name in (
        # the line: broken, refused, too slow, or not there just now
        *("ECONNRESET", "ECONNREFUSED", "ECONNABORTED", "ETIMEDOUT", "EPIPE", "ENOTCONN", "ESHUTDOWN"),
        *("EHOSTUNREACH", "EHOSTDOWN", "ENETUNREACH", "ENETDOWN", "ENETRESET", "EADDRINUSE", "EADDRNOTAVAIL"),
        # the machine: out of something that others give back
        *("EAGAIN", "EWOULDBLOCK", "EINTR", "ENOMEM", "EMFILE", "ENFILE", "ENOBUFS", "ENOSPC"),
        *("EBUSY", "ETXTBSY", "EDEADLK", "ENOLCK", "ESTALE"),
    )
    if hasattr(errno, name)
)

_SERVICE_CODES = _words(
    "SlowDown ServiceUnavailable InternalError RequestTimeout RequestTimeoutException Throttling "
    "ThrottlingException ThrottledException RequestThrottled RequestThrottledException RequestLimitExceeded "
    "TooManyRequestsException ProvisionedThroughputExceededException TransactionInProgressException "
    "BandwidthLimitExceeded LimitExceededException PriorRequestNotComplete EC2ThrottledException"
)

_GRPC_CODES = _words("UNAVAILABLE DEADLINE_EXCEEDED RESOURCE_EXHAUSTED ABORTED CANCELLED INTERNAL UNKNOWN")

_KAFKA_CODES = _words(
    "_TIMED_OUT _TIMED_OUT_QUEUE _MSG_TIMED_OUT _ALL_BROKERS_DOWN _TRANSPORT _RESOLVE _QUEUE_FULL "
    "REQUEST_TIMED_OUT LEADER_NOT_AVAILABLE NOT_LEADER_FOR_PARTITION BROKER_NOT_AVAILABLE NETWORK_EXCEPTION "
    "NOT_ENOUGH_REPLICAS NOT_ENOUGH_REPLICAS_AFTER_APPEND COORDINATOR_NOT_AVAILABLE NOT_COORDINATOR "
    "COORDINATOR_LOAD_IN_PROGRESS THROTTLING_QUOTA_EXCEEDED"
)

_REDIS_WORDS = _words(
    "LOADING READONLY OOM MISCONF NOREPLICAS BUSY UNBLOCKED TRYAGAIN CLUSTERDOWN MASTERDOWN MOVED ASK"
)

# connections, shutdown, quotas, lock wait, deadlock, read-only, interrupted; network errors are ranges
_MYSQL_CODES = frozenset({1040, 1042, 1043, 1053, 1203, 1205, 1213, 1226, 1290, 1317, 1792, 1836, 3024, 4031})

# busy, locked, out of memory, interrupted, I/O, full, cannot open, lock protocol (1 would be bad SQL)
_SQLITE_CODES = frozenset({5, 6, 7, 9, 10, 13, 14, 15})

# connection, rollback, resources, operator intervention, system error
_SQLSTATE_CLASSES = frozenset({"08", "40", "53", "57", "58"})
# lock not available, read-only transaction (a failover), session and transaction timeouts
_SQLSTATES = frozenset({"55P03", "25006", "25P03", "25P04"})
_INTEGRITY_SQLSTATE = "40002"


def ask(holder: Any, name: str) -> Any:
    """An attribute, or None: a foreign property may raise anything."""
    with suppress(Exception):
        return getattr(holder, name, None)
    return None


def by_errno(error: OSError) -> bool | None:
    return error.errno in _ERRNOS if isinstance(error.errno, int) else None


def by_status_number(status: Any) -> bool | None:
    """An HTTP status: 5xx passes, 4xx does not, but for three that speak of the moment.

    408 (took too long), 425 (too early) and 429 (too many) say nothing against the request itself
    and ask for it again later; every other 4xx would be answered in the same way.
    """
    if not isinstance(status, int) or not 400 <= status <= 599:
        return None
    return status >= 500 or status in (408, 425, 429)


def by_status(error: BaseException) -> bool | None:
    """An HTTP status on the error or on its response, whatever library it came from."""
    for holder in (error, ask(error, "response")):
        for name in ("status_code", "status", "http_status"):
            passes = by_status_number(ask(holder, name))
            if passes is not None:
                return passes
    return None


def by_status_code(error: BaseException) -> bool | None:
    """An HTTP status kept under `code`, a name too common to be looked at on any error."""
    return by_status_number(ask(error, "code"))


def by_service(error: BaseException) -> bool | None:
    """S3's way of speaking: a code by name (under status 400 at times) beside the status."""
    response = ask(error, "response")
    if not isinstance(response, dict):
        return ask(error, "code") in _SERVICE_CODES or by_status(error)
    if response.get("Error", {}).get("Code") in _SERVICE_CODES:
        return True
    return by_status_number(response.get("ResponseMetadata", {}).get("HTTPStatusCode"))


def by_sqlstate(error: BaseException) -> bool | None:
    state = ask(error, "sqlstate") or ask(error, "pgcode")
    if not isinstance(state, str):
        return None
    return state in _SQLSTATES or (state[:2] in _SQLSTATE_CLASSES and state != _INTEGRITY_SQLSTATE)


def by_mysql(error: BaseException) -> bool | None:
    code = ask(error, "errno") or next(iter(error.args), None)
    if not isinstance(code, int) or code <= 0:
        return None
    return code in _MYSQL_CODES or 1158 <= code <= 1161 or 2000 <= code <= 2099


def by_sqlite(error: BaseException) -> bool | None:
    code = ask(error, "sqlite_errorcode")
    return code & 0xFF in _SQLITE_CODES if isinstance(code, int) else None


def by_smtp(error: BaseException) -> bool:
    # the other way round than HTTP: 4xx is "later", 5xx is "never"; no code at all is a broken line
    code = ask(error, "smtp_code") or ask(error, "code")
    return not (isinstance(code, int) and 500 <= code <= 599)


def by_recipients(error: BaseException) -> bool:
    refused = ask(error, "recipients")
    replies = [reply[0] for reply in refused.values()] if isinstance(refused, dict) else []
    return bool(replies) and all(400 <= code <= 499 for code in replies)


def by_grpc(error: Any) -> bool | None:
    code = error.code() if callable(ask(error, "code")) else None
    return None if code is None else ask(code, "name") in _GRPC_CODES


def by_retriable(error: BaseException) -> bool | None:
    return True if ask(error, "retriable") is True else None


def by_kafka_code(error: BaseException) -> bool | None:
    detail: Any = next(iter(error.args), None)
    if not callable(ask(detail, "name")) or not callable(ask(detail, "retriable")):
        return None
    return detail.name() in _KAFKA_CODES or bool(detail.retriable())


def by_redis_word(error: BaseException) -> bool | None:
    return True if str(error).split(" ", 1)[0] in _REDIS_WORDS else None


def or_passes(detail: Detail) -> Detail:
    """The detail decides; an error of this class that carries none is a lost connection."""

    def decide(error: BaseException) -> bool:
        passes = detail(error)
        return True if passes is None else passes

    return decide
