"""The table of known errors, transient or permanent, and the checks of the codes that errors carry."""

import errno
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from functools import partial
from operator import attrgetter
from typing import Any

from msgspec import Struct


class FailureKind(StrEnum):
    """Whether another attempt may succeed."""

    TRANSIENT = "transient"
    PERMANENT = "permanent"


class Wrapper(Struct, frozen=True):
    """An error that carries the real one, which decides; `otherwise` where that one is not known."""

    otherwise: FailureKind | None = None


Check = Callable[[Any], bool | None]
"""Whether the error is transient by what it carries (True, False), or None where it carries nothing."""

KnownError = FailureKind | Wrapper | Check


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ERRNOS = frozenset(
    vars(errno)[name]
    for name in (
        # the connection: broken, refused, timed out, or unreachable
        *("ECONNRESET", "ECONNREFUSED", "ECONNABORTED", "ETIMEDOUT", "EPIPE", "ENOTCONN", "ESHUTDOWN"),
        *("EHOSTUNREACH", "EHOSTDOWN", "ENETUNREACH", "ENETDOWN", "ENETRESET", "EADDRINUSE", "EADDRNOTAVAIL"),
        # the machine: out of a resource that others will release
        *("EAGAIN", "EWOULDBLOCK", "EINTR", "ENOMEM", "EMFILE", "ENFILE", "ENOBUFS", "ENOSPC"),
        *("EBUSY", "ETXTBSY", "EDEADLK", "ENOLCK", "ESTALE"),
    )
    if name in vars(errno)
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


_STATUSES = tuple(map(attrgetter, ("status_code", "status", "http_status")))


def read(value: Callable[[], Any]) -> Any:
    """Return the value, or None where an attribute of a foreign error is missing or raises.

    >>> read(lambda: ValueError().response) is None
    True
    """
    with suppress(Exception):
        return value()
    return None


def by_errno(error: OSError) -> bool | None:
    return error.errno in _ERRNOS if isinstance(error.errno, int) else None


def by_status_number(status: Any) -> bool | None:
    """Check an HTTP status: 5xx is transient, 4xx permanent but for 408, 425 and 429.

    Those three (timeout, too early, too many requests) ask for the same request again later.
    """
    if not isinstance(status, int) or not 400 <= status <= 599:
        return None
    return status >= 500 or status in (408, 425, 429)


def by_status(error: Any) -> bool | None:
    """Check an HTTP status on the error or on its response, whatever library it came from."""
    for holder in (error, read(lambda: error.response)):
        for status in _STATUSES:
            is_transient = by_status_number(read(partial(status, holder)))
            if is_transient is not None:
                return is_transient
    return None


def by_status_code(error: Any) -> bool | None:
    """Check an HTTP status under `code`, a name too common to be looked at on any error."""
    return by_status_number(read(lambda: error.code))


def by_service(error: Any) -> bool | None:
    """Check an S3 error: a code by name (at times under status 400) beside the status."""
    response = read(lambda: error.response)
    if not isinstance(response, dict):
        return read(lambda: error.code) in _SERVICE_CODES or by_status(error)
    if response.get("Error", {}).get("Code") in _SERVICE_CODES:
        return True
    return by_status_number(response.get("ResponseMetadata", {}).get("HTTPStatusCode"))


def by_sqlstate(error: Any) -> bool | None:
    state = read(lambda: error.sqlstate) or read(lambda: error.pgcode)
    if not isinstance(state, str):
        return None
    return state in _SQLSTATES or (state[:2] in _SQLSTATE_CLASSES and state != _INTEGRITY_SQLSTATE)


def by_mysql(error: Any) -> bool | None:
    code = read(lambda: error.errno) or next(iter(error.args), None)
    if not isinstance(code, int) or code <= 0:
        return None
    return code in _MYSQL_CODES or 1158 <= code <= 1161 or 2000 <= code <= 2099


def by_sqlite(error: Any) -> bool | None:
    code = read(lambda: error.sqlite_errorcode)
    return code & 0xFF in _SQLITE_CODES if isinstance(code, int) else None


def by_smtp(error: Any) -> bool:
    # unlike HTTP, 4xx is transient and 5xx permanent; no code at all is a broken connection
    code = read(lambda: error.smtp_code) or read(lambda: error.code)
    return not (isinstance(code, int) and 500 <= code <= 599)


def by_recipients(error: Any) -> bool:
    recipients = read(lambda: error.recipients)
    codes = [reply[0] for reply in recipients.values()] if isinstance(recipients, dict) else []
    return bool(codes) and all(400 <= code <= 499 for code in codes)


def by_grpc(error: Any) -> bool | None:
    code = error.code() if callable(read(lambda: error.code)) else None
    return None if code is None else read(lambda: code.name) in _GRPC_CODES


def by_retriable(error: Any) -> bool | None:
    return True if read(lambda: error.retriable) is True else None


def by_kafka_code(error: BaseException) -> bool | None:
    detail: Any = next(iter(error.args), None)
    if not callable(read(lambda: detail.name)) or not callable(read(lambda: detail.retriable)):
        return None
    return detail.name() in _KAFKA_CODES or bool(detail.retriable())


def by_redis_word(error: BaseException) -> bool | None:
    return True if str(error).split(" ", 1)[0] in _REDIS_WORDS else None


def transient_unless(check: Check) -> Check:
    """Return a check that takes an error without details, such as a lost connection, for transient."""

    def decide(error: BaseException) -> bool:
        is_transient = check(error)
        return True if is_transient is None else is_transient

    return decide


_YES, _NO = FailureKind.TRANSIENT, FailureKind.PERMANENT
_MYSQL = "pymysql MySQLdb mysql.connector asyncmy"

_TABLE: tuple[tuple[KnownError, str, str], ...] = (
    # Corral's own errors
    (_YES, "corral", "Transient JobTimeout ProcessDied Postpone Release RedisError SettleError"),
    (_NO, "corral", "Unrecoverable JobCancelled Refused RedisResponseError FailedChildren"),
    # timeouts and cancellation
    (_YES, "builtins", "TimeoutError KeyboardInterrupt"),
    (_YES, "asyncio", "CancelledError"),
    (_YES, "concurrent.futures", "CancelledError"),
    (_YES, "multiprocessing", "TimeoutError"),
    (_YES, "subprocess", "TimeoutExpired"),
    # connections, streams and resources of the machine
    (_YES, "builtins", "ConnectionError EOFError BlockingIOError InterruptedError MemoryError"),
    (_YES, "concurrent.futures", "BrokenExecutor"),
    (_YES, "anyio", "EndOfStream IncompleteRead BrokenResourceError ClosedResourceError BrokenWorkerProcess"),
    (_NO, "builtins", "PermissionError FileNotFoundError"),
    (by_errno, "builtins", "OSError"),
    # not by errno: a resolver has numbers of its own, and a name may be missing for a moment only
    (_YES, "socket", "gaierror"),
    (_YES, "ssl", "SSLEOFError SSLZeroReturnError SSLSyscallError SSLWantReadError SSLWantWriteError"),
    # its errno is the library's own number, not the system's
    (_NO, "ssl", "SSLError"),
    # validation, data, and mistakes in the handler itself
    (_NO, "builtins", "ValueError TypeError LookupError AttributeError ArithmeticError AssertionError"),
    (_NO, "builtins", "NotImplementedError NameError ImportError SyntaxError"),
    (_NO, "msgspec", "MsgspecError"),
    (_NO, "jsonschema", "ValidationError SchemaError"),
    (_NO, "pydantic", "ValidationError"),
    (_NO, "marshmallow", "ValidationError"),
    (_NO, "django", "ValidationError ObjectDoesNotExist PermissionDenied"),
    # HTTP clients; a status on the error is looked at after this table, for every library
    (_YES, "httpx httpx2", "TransportError"),
    (Wrapper(_YES), "httpx httpx2", "ConnectError"),
    (_NO, "httpx httpx2", "UnsupportedProtocol LocalProtocolError TooManyRedirects DecodingError InvalidURL"),
    (_YES, "httpcore", "NetworkError TimeoutException RemoteProtocolError ProxyError ConnectionNotAvailable"),
    (Wrapper(_YES), "httpcore", "ConnectError"),
    (_YES, "requests", "ConnectionError Timeout ChunkedEncodingError RetryError"),
    (Wrapper(_YES), "requests", "SSLError"),
    (_NO, "requests", "TooManyRedirects InvalidJSONError ContentDecodingError"),
    (_YES, "urllib3", "TimeoutError ProtocolError ProxyError PoolError IncompleteRead"),
    (Wrapper(_YES), "urllib3", "MaxRetryError SSLError"),
    (_YES, "http.client", "IncompleteRead BadStatusLine"),
    (Wrapper(), "urllib", "URLError"),
    (by_status_code, "urllib", "HTTPError"),
    (_YES, "urllib", "ContentTooShortError"),
    (_YES, "aiohttp", "ClientConnectionError ClientPayloadError UploadAbortedError"),
    (_NO, "aiohttp", "ClientConnectorCertificateError ServerFingerprintMismatch ContentTypeError"),
    (_YES, "h11", "RemoteProtocolError"),
    (_YES, "websockets", "ConnectionClosed"),
    (by_status_code, "tornado", "HTTPClientError HTTPError"),
    (by_grpc, "grpc", "RpcError"),
    (_YES, "grpc", "FutureTimeoutError FutureCancelledError"),
    # mail and file transfer
    (by_smtp, "smtplib aiosmtplib", "SMTPResponseException"),
    (_YES, "smtplib aiosmtplib", "SMTPServerDisconnected"),
    (by_recipients, "smtplib", "SMTPRecipientsRefused"),
    (_YES, "ftplib", "error_temp"),
    # Redis: lost connections, transaction conflicts, failovers, busy servers
    (_YES, "redis valkey", "ConnectionError TimeoutError WatchError TryAgainError ReadOnlyError"),
    (_YES, "redis valkey", "OutOfMemoryError ClusterError SlotNotCoveredError AskError LockError"),
    (_NO, "redis valkey", "AuthenticationError AuthorizationError NoPermissionError DataError"),
    (by_redis_word, "redis valkey", "ResponseError"),
    # databases
    (transient_unless(by_sqlstate), "psycopg psycopg2", "OperationalError InterfaceError"),
    (by_sqlstate, "psycopg psycopg2", "Error"),
    (_NO, "psycopg psycopg2", "IntegrityError DataError"),
    (_YES, "psycopg_pool", "PoolTimeout PoolClosed TooManyRequests"),
    (by_sqlstate, "asyncpg", "PostgresError"),
    (_YES, "asyncpg", "InterfaceError"),
    (_NO, "asyncpg", "ClientConfigurationError UnsupportedClientFeatureError UnsupportedServerFeatureError"),
    (
        transient_unless(by_mysql),
        _MYSQL,
        "OperationalError InterfaceError",
    ),
    (by_mysql, _MYSQL, "Error"),
    (
        _NO,
        _MYSQL,
        "IntegrityError DataError ProgrammingError NotSupportedError",
    ),
    (_YES, "mysql.connector", "ConnectionTimeoutError ReadTimeoutError WriteTimeoutError PoolError"),
    (transient_unless(by_sqlite), "sqlite3", "OperationalError"),
    (by_sqlite, "sqlite3", "DatabaseError"),
    (_NO, "sqlite3", "IntegrityError InterfaceError DataError ProgrammingError"),
    (_YES, "pyodbc oracledb", "OperationalError InterfaceError"),
    (_NO, "pyodbc oracledb", "IntegrityError DataError ProgrammingError"),
    (Wrapper(_YES), "sqlalchemy django.db", "OperationalError InterfaceError"),
    (Wrapper(), "sqlalchemy django.db", "DBAPIError DatabaseError"),
    (_NO, "sqlalchemy django.db", "IntegrityError DataError ProgrammingError NotSupportedError"),
    (_YES, "sqlalchemy", "TimeoutError DisconnectionError StaleDataError"),
    (_YES, "pymongo", "ConnectionFailure ExecutionTimeout WTimeoutError CursorNotFound"),
    (_YES, "elastic_transport", "ConnectionError ConnectionTimeout"),
    # message queues
    (_YES, "pika", "AMQPConnectionError ChannelWrongStateError ChannelClosed NackError"),
    (_NO, "pika", "AuthenticationError ProbableAuthenticationError ProbableAccessDeniedError"),
    (_NO, "pika", "IncompatibleProtocolError ChannelClosedByBroker UnroutableError"),
    (_YES, "aiormq", "AMQPConnectionError ChannelInvalidStateError ChannelClosed DeliveryError"),
    (_NO, "aiormq", "AuthenticationError ProbableAuthenticationError IncompatibleProtocolError PublishError"),
    (_NO, "aiormq", "ChannelNotFoundEntity ChannelPreconditionFailed ChannelAccessRefused"),
    (_NO, "aiormq", "DuplicateConsumerTag ConnectionNotAllowed"),
    (_YES, "amqp", "RecoverableConnectionError RecoverableChannelError"),
    (_YES, "kombu", "OperationalError LimitExceeded"),
    (
        _YES,
        "kafka aiokafka",
        "KafkaTimeoutError KafkaConnectionError KafkaUnavailableError NoBrokersAvailable",
    ),
    (_YES, "kafka aiokafka", "NodeNotReadyError RequestTimedOutError BrokerNotAvailableError"),
    (by_retriable, "kafka aiokafka", "KafkaError"),
    (by_kafka_code, "cimpl", "KafkaException"),
    (_YES, "nats", "NoServersError NoRespondersError ConnectionClosedError StaleConnectionError"),
    (_YES, "nats", "ConnectionReconnectingError ConnectionDrainingError OutboundBufferLimitError"),
    # cloud storage and services
    (by_service, "botocore", "ClientError"),
    (_YES, "botocore", "HTTPClientError ConnectionError"),
    (Wrapper(), "boto3", "S3UploadFailedError S3TransferFailedError RetriesExceededError"),
    (by_service, "minio", "S3Error"),
    (by_status_code, "google.api_core", "GoogleAPICallError"),
    (_YES, "google.api_core", "RetryError Aborted Cancelled"),
    (_YES, "google.auth", "TransportError TimeoutError"),
    (_YES, "azure.core", "ServiceRequestError ServiceResponseError IncompleteReadError"),
)

KNOWN_ERRORS: dict[str, KnownError] = {
    f"{package}.{name}": entry
    for entry, packages, names in _TABLE
    for package in packages.split()
    for name in names.split()
}
"""By the class's full name, or that of a public package above its module."""
