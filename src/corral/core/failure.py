"""Transient or permanent: the one classification table."""

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum

from msgspec import Struct

from corral.core import failure_details as details
from corral.core.failure_details import Detail
from corral.errors import InvalidOptions, Transient, Unrecoverable


class Verdict(StrEnum):
    TRANSIENT = "transient"
    PERMANENT = "permanent"


Classifier = Callable[[BaseException], Verdict]


class _Wraps(Struct, frozen=True):
    """An error that carries the real one: that one decides, this where it says nothing."""

    otherwise: Verdict | None = None


_YES, _NO = Verdict.TRANSIENT, Verdict.PERMANENT
_Entry = Verdict | _Wraps | Detail

_TABLE: tuple[tuple[_Entry, str, str], ...] = (
    # what handlers and our own parts say
    (_YES, "corral", "Transient JobTimeout ProcessDied Postpone Release RedisError SettleError"),
    (_NO, "corral", "Unrecoverable JobCancelled Refused RedisResponseError FailedChildren"),
    # timeouts and cancellation
    (_YES, "builtins", "TimeoutError KeyboardInterrupt"),
    (_YES, "asyncio", "CancelledError"),
    (_YES, "concurrent.futures", "CancelledError"),
    (_YES, "multiprocessing", "TimeoutError"),
    (_YES, "subprocess", "TimeoutExpired"),
    # connections, streams and what the machine runs out of
    (_YES, "builtins", "ConnectionError EOFError BlockingIOError InterruptedError MemoryError"),
    (_YES, "concurrent.futures", "BrokenExecutor"),
    (_YES, "anyio", "EndOfStream IncompleteRead BrokenResourceError ClosedResourceError BrokenWorkerProcess"),
    (_NO, "builtins", "PermissionError FileNotFoundError"),
    (details.by_errno, "builtins", "OSError"),
    # not by errno: a resolver's numbers are its own; and a name may be gone for a moment only
    (_YES, "socket", "gaierror"),
    (_YES, "ssl", "SSLEOFError SSLZeroReturnError SSLSyscallError SSLWantReadError SSLWantWriteError"),
    # its errno is the library's own number, so it must not be read as the system's
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
    *(
        row
        for client in ("httpx", "httpx2")
        for row in (
            (_YES, client, "TransportError"),
            (_Wraps(_YES), client, "ConnectError"),
            (_NO, client, "UnsupportedProtocol LocalProtocolError TooManyRedirects DecodingError InvalidURL"),
        )
    ),
    (_YES, "httpcore", "NetworkError TimeoutException RemoteProtocolError ProxyError ConnectionNotAvailable"),
    (_Wraps(_YES), "httpcore", "ConnectError"),
    (_YES, "requests", "ConnectionError Timeout ChunkedEncodingError RetryError"),
    (_Wraps(_YES), "requests", "SSLError"),
    (_NO, "requests", "TooManyRedirects InvalidJSONError ContentDecodingError"),
    (_YES, "urllib3", "TimeoutError ProtocolError ProxyError PoolError IncompleteRead"),
    (_Wraps(_YES), "urllib3", "MaxRetryError SSLError"),
    (_YES, "http.client", "IncompleteRead BadStatusLine"),
    (_Wraps(), "urllib", "URLError"),
    (details.by_status_code, "urllib", "HTTPError"),
    (_YES, "urllib", "ContentTooShortError"),
    (_YES, "aiohttp", "ClientConnectionError ClientPayloadError UploadAbortedError"),
    (_NO, "aiohttp", "ClientConnectorCertificateError ServerFingerprintMismatch ContentTypeError"),
    (_YES, "h11", "RemoteProtocolError"),
    (_YES, "websockets", "ConnectionClosed"),
    (details.by_status_code, "tornado", "HTTPClientError HTTPError"),
    (details.by_grpc, "grpc", "RpcError"),
    (_YES, "grpc", "FutureTimeoutError FutureCancelledError"),
    # mail and files over the line
    *((details.by_smtp, library, "SMTPResponseException") for library in ("smtplib", "aiosmtplib")),
    *((_YES, library, "SMTPServerDisconnected") for library in ("smtplib", "aiosmtplib")),
    (details.by_recipients, "smtplib", "SMTPRecipientsRefused"),
    (_YES, "ftplib", "error_temp"),
    # Redis: lost connections, transaction conflicts, failovers, busy servers
    *(
        row
        for client in ("redis", "valkey")
        for row in (
            (_YES, client, "ConnectionError TimeoutError WatchError TryAgainError ReadOnlyError"),
            (_YES, client, "OutOfMemoryError ClusterError SlotNotCoveredError AskError LockError"),
            (_NO, client, "AuthenticationError AuthorizationError NoPermissionError DataError"),
            (details.by_redis_word, client, "ResponseError"),
        )
    ),
    # databases
    *(
        row
        for driver in ("psycopg", "psycopg2")
        for row in (
            (details.or_passes(details.by_sqlstate), driver, "OperationalError InterfaceError"),
            (details.by_sqlstate, driver, "Error"),
            (_NO, driver, "IntegrityError DataError"),
        )
    ),
    (_YES, "psycopg_pool", "PoolTimeout PoolClosed TooManyRequests"),
    (details.by_sqlstate, "asyncpg", "PostgresError"),
    (_YES, "asyncpg", "InterfaceError"),
    (_NO, "asyncpg", "ClientConfigurationError UnsupportedClientFeatureError UnsupportedServerFeatureError"),
    *(
        row
        for driver in ("pymysql", "MySQLdb", "mysql.connector", "asyncmy")
        for row in (
            (details.or_passes(details.by_mysql), driver, "OperationalError InterfaceError"),
            (details.by_mysql, driver, "Error"),
            (_NO, driver, "IntegrityError DataError ProgrammingError NotSupportedError"),
        )
    ),
    (_YES, "mysql.connector", "ConnectionTimeoutError ReadTimeoutError WriteTimeoutError PoolError"),
    (details.or_passes(details.by_sqlite), "sqlite3", "OperationalError"),
    (details.by_sqlite, "sqlite3", "DatabaseError"),
    (_NO, "sqlite3", "IntegrityError InterfaceError DataError ProgrammingError"),
    *((_YES, driver, "OperationalError InterfaceError") for driver in ("pyodbc", "oracledb")),
    *((_NO, driver, "IntegrityError DataError ProgrammingError") for driver in ("pyodbc", "oracledb")),
    *(
        row
        for layer in ("sqlalchemy", "django.db")
        for row in (
            (_Wraps(_YES), layer, "OperationalError InterfaceError"),
            (_Wraps(), layer, "DBAPIError DatabaseError"),
            (_NO, layer, "IntegrityError DataError ProgrammingError NotSupportedError"),
        )
    ),
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
    *(
        row
        for client in ("kafka", "aiokafka")
        for row in (
            (_YES, client, "KafkaTimeoutError KafkaConnectionError KafkaUnavailableError NoBrokersAvailable"),
            (_YES, client, "NodeNotReadyError RequestTimedOutError BrokerNotAvailableError"),
            (details.by_retriable, client, "KafkaError"),
        )
    ),
    (details.by_kafka_code, "cimpl", "KafkaException"),
    (_YES, "nats", "NoServersError NoRespondersError ConnectionClosedError StaleConnectionError"),
    (_YES, "nats", "ConnectionReconnectingError ConnectionDrainingError OutboundBufferLimitError"),
    # cloud storage and services
    (details.by_service, "botocore", "ClientError"),
    (_YES, "botocore", "HTTPClientError ConnectionError"),
    (_Wraps(), "boto3", "S3UploadFailedError S3TransferFailedError RetriesExceededError"),
    (details.by_service, "minio", "S3Error"),
    (details.by_status_code, "google.api_core", "GoogleAPICallError"),
    (_YES, "google.api_core", "RetryError Aborted Cancelled"),
    (_YES, "google.auth", "TransportError TimeoutError"),
    (_YES, "azure.core", "ServiceRequestError ServiceResponseError IncompleteReadError"),
)

_KNOWN: dict[str, _Entry] = {
    f"{package}.{name}": entry for entry, package, names in _TABLE for name in names.split()
}


class Rules(Struct, frozen=True):
    """A user's own verdicts, asked before the table; `classifier` builds it, a worker calls it."""

    verdicts: dict[type[BaseException] | str, Verdict]

    def __call__(self, error: BaseException) -> Verdict:
        return _find(error, self, frozenset()) or Verdict.PERMANENT


def classify(error: BaseException) -> Verdict:
    """Is it worth another attempt?

    In this order: what the handler said (`Unrecoverable`, `Transient`); for a group, transient only
    if all in it are; the table, by the class's full name and then its bases'; an HTTP status that
    the error or its response carries; for an error nobody knows, its `__cause__` (`raise X from Y`:
    a wrapper of one's own says nothing about the fault inside, while X, where it is known, speaks
    for itself; a mere `__context__` is never asked). What stays unknown is permanent: a
    retry that cannot help only hides the error for longer.

    >>> classify(ConnectionResetError()), classify(KeyError("to"))
    (<Verdict.TRANSIENT: 'transient'>, <Verdict.PERMANENT: 'permanent'>)
    """
    return _find(error, None, frozenset()) or Verdict.PERMANENT


def classifier(
    transient: Iterable[type[BaseException] | str] | type[BaseException] | str = (),
    permanent: Iterable[type[BaseException] | str] | type[BaseException] | str = (),
) -> Rules:
    """The table with rules of one's own before it: exception classes, or full names of them.

    Subclasses are meant too, and the most specific class decides. A name needs no import:
    `"stripe.RateLimitError"` also fits a class that lives in a module below `stripe`.

    >>> rules = classifier(transient=[LookupError], permanent=["builtins.ConnectionRefusedError"])
    >>> rules(KeyError("x")), rules(ConnectionRefusedError())
    (<Verdict.TRANSIENT: 'transient'>, <Verdict.PERMANENT: 'permanent'>)
    """
    verdicts: dict[type[BaseException] | str, Verdict] = {}
    for given, verdict in ((transient, Verdict.TRANSIENT), (permanent, Verdict.PERMANENT)):
        for error in (given,) if isinstance(given, str | type) else given:
            _check_rule(error)
            if verdicts.setdefault(error, verdict) is not verdict:
                raise InvalidOptions(f"{error!r} is in both transient and permanent; keep it in one of them")
    return Rules(verdicts)


def spoken(error: BaseException) -> Verdict | None:
    """What the handler itself said: `Transient`, or `Unrecoverable` (by name too, as BullMQ's clients do)."""
    if isinstance(error, Transient):
        return Verdict.TRANSIENT
    if isinstance(error, Unrecoverable) or any(
        cls.__name__ == "UnrecoverableError" for cls in type(error).__mro__
    ):
        return Verdict.PERMANENT
    return None


def _check_rule(error: object) -> None:
    if isinstance(error, type) and issubclass(error, BaseException):
        return
    if not isinstance(error, str) or "." not in error.strip("."):
        raise InvalidOptions(
            f"{error!r} is no exception; use a class, or its full name such as 'httpx.ReadTimeout'"
        )


def _find(error: BaseException, rules: Rules | None, above: frozenset[int]) -> Verdict | None:
    """The verdict on an error, or else on what caused it; `above` stops a chain that bites its tail."""
    link: BaseException | None = error
    while link is not None and id(link) not in above:
        above |= {id(link)}
        verdict = _judge(link, rules, above)
        if verdict is not None:
            return verdict
        link = link.__cause__
    return None


def _judge(error: BaseException, rules: Rules | None, above: frozenset[int]) -> Verdict | None:
    """The verdict on this one error, without its cause."""
    verdict = spoken(error) or (_by_rules(error, rules) if rules else None)
    if verdict is not None:
        return verdict
    if isinstance(error, BaseExceptionGroup):
        found = {_find(inner, rules, above) for inner in error.exceptions}
        return Verdict.TRANSIENT if found == {Verdict.TRANSIENT} else Verdict.PERMANENT
    return _by_table(error, rules, above) or _verdict(details.by_status(error))


def _by_rules(error: BaseException, rules: Rules) -> Verdict | None:
    for cls in type(error).__mro__:
        for key in (cls, *_names(cls)):
            if key in rules.verdicts:
                return rules.verdicts[key]
    return None


def _by_table(error: BaseException, rules: Rules | None, above: frozenset[int]) -> Verdict | None:
    for cls in type(error).__mro__:
        for name in _names(cls):
            if name in _KNOWN:
                verdict = _entry_says(_KNOWN[name], error, rules, above)
                if verdict is not None:
                    return verdict
    return None


def _entry_says(
    entry: _Entry, error: BaseException, rules: Rules | None, above: frozenset[int]
) -> Verdict | None:
    if isinstance(entry, Verdict):
        return entry
    if not isinstance(entry, _Wraps):
        return _verdict(entry(error))
    for inner in _inside(error):
        verdict = _find(inner, rules, above)
        if verdict is not None:
            return verdict
    return entry.otherwise


def _inside(error: BaseException) -> Iterator[BaseException]:
    """The errors a wrapper carries: by its own attribute, as an argument, as cause or context."""
    carried = (details.ask(error, "orig"), details.ask(error, "reason"), *error.args)
    yield from (one for one in (*carried, error.__cause__) if isinstance(one, BaseException))
    if error.__context__ is not None and not error.__suppress_context__:
        yield error.__context__


def _names(cls: type) -> Iterator[str]:
    """A class's full name, then the same as if it lived in each package above its module.

    Libraries keep `httpx.ReadTimeout` in `httpx._exceptions`: the public name must fit both.
    """
    module = cls.__module__
    while module:
        yield f"{module}.{cls.__qualname__}"
        module = module.rpartition(".")[0]


def _verdict(passes: bool | None) -> Verdict | None:
    return None if passes is None else Verdict.TRANSIENT if passes else Verdict.PERMANENT
