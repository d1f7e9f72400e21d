"""Every line of the error categories, and what else a handler may meet."""

import asyncio
import concurrent.futures
import errno
import io
import json
import math
import multiprocessing
import smtplib
import socket
import ssl
import subprocess
import sys
import urllib.error
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import httpx
import jsonschema
import msgspec
import pydantic
import pytest
import redis
import requests

from corral import errors
from corral.core.known_errors import FailureKind
from corral.core.retry import ErrorRules, classifier, classify
from corral.errors import InvalidOptions

TRANSIENT, PERMANENT = FailureKind.TRANSIENT, FailureKind.PERMANENT


def raised(fn: Any, *arguments: Any, **named: Any) -> BaseException:
    """What a call really raises."""
    with pytest.raises(BaseException) as caught:  # noqa: PT011
        fn(*arguments, **named)
    return caught.value


def stand_in(
    *names: str, base: type[BaseException] = Exception, args: tuple[Any, ...] = (), **attributes: Any
) -> BaseException:
    """An error of a library that is not here: the full names of its classes, from the base down."""
    cls: type[BaseException] = base
    for full in names:
        module, _, name = full.rpartition(".")
        cls = type(name, (cls,), {"__module__": module, "__qualname__": name})
    error = cls(*args)
    for name, value in attributes.items():
        setattr(error, name, value)
    return error


def with_status(status: int) -> httpx.HTTPStatusError:
    response = httpx.Response(status, request=httpx.Request("GET", "http://127.0.0.1/"))
    error = raised(response.raise_for_status)
    assert isinstance(error, httpx.HTTPStatusError)
    return error


def aws(status: int, code: str) -> BaseException:
    response = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return stand_in("botocore.exceptions.ClientError", response=response)


class Model(pydantic.BaseModel):
    to: str


TRANSIENT_LINES = {
    "context.DeadlineExceeded (timeout)": [
        TimeoutError(),
        asyncio.TimeoutError(),  # noqa: UP041
        concurrent.futures.TimeoutError(),
        errors.JobTimeout("30 s"),
    ],
    "context.Canceled": [asyncio.CancelledError(), concurrent.futures.CancelledError()],
    "io.EOF, io.ErrUnexpectedEOF (connection closed)": [EOFError(), asyncio.IncompleteReadError(b"a", 2)],
    "syscall.ECONNRESET": [ConnectionResetError(), OSError(errno.ECONNRESET, "reset")],
    "syscall.ECONNREFUSED": [ConnectionRefusedError(), OSError(errno.ECONNREFUSED, "refused")],
    "syscall.ETIMEDOUT": [OSError(errno.ETIMEDOUT, "timed out")],
    "net.Error with Timeout() == true": [subprocess.TimeoutExpired("ls", 1), multiprocessing.TimeoutError()],
    "net.Error with Temporary() == true": [
        OSError(errno.EMFILE, "too many open files"),
        OSError(errno.EHOSTUNREACH, "no route"),
        OSError(errno.EPIPE, "broken"),
        InterruptedError(),
        socket.gaierror(socket.EAI_NONAME, "a service whose name is not there just now"),
        ssl.SSLEOFError(8, "eof"),
    ],
    "redis.TxFailedErr (transaction conflict - retry)": [redis.WatchError("watched")],
    "Redis connection errors": [
        redis.ConnectionError("gone"),
        redis.TimeoutError("slow"),
        redis.exceptions.BusyLoadingError("loading"),
        redis.exceptions.ReadOnlyError("replica"),
        redis.exceptions.TryAgainError("slots"),
        redis.exceptions.ClusterDownError("down"),
        redis.exceptions.MovedError("1 127.0.0.1:1"),
        redis.exceptions.OutOfMemoryError("maxmemory"),
        redis.ResponseError("MISCONF cannot persist"),
        redis.ResponseError("BUSY running a script"),
        stand_in("valkey.exceptions.ValkeyError", "valkey.exceptions.ConnectionError"),
        errors.RedisConnectionError("127.0.0.1:6379: refused"),
        errors.RedisLoadingError("loading"),
    ],
    "HTTP 5xx (server errors)": [with_status(status) for status in (500, 501, 502, 503, 504, 599)],
    "Database connection errors": [
        stand_in("psycopg.Error", "psycopg.DatabaseError", "psycopg.OperationalError"),
        stand_in("psycopg.Error", "psycopg.InterfaceError"),
        stand_in("psycopg.Error", "psycopg.OperationalError", "psycopg.errors.Deadlock", sqlstate="40P01"),
        stand_in("psycopg.Error", "psycopg.InternalError", "psycopg.errors.Idle", sqlstate="25P03"),
        stand_in("psycopg2.Error", "psycopg2.OperationalError", pgcode="57P01"),
        stand_in("asyncpg.exceptions._base.PostgresError", "asyncpg.exceptions.Gone", sqlstate="08006"),
        stand_in("asyncpg.exceptions._base.PostgresError", "asyncpg.exceptions.Many", sqlstate="53300"),
        stand_in("asyncpg.exceptions._base.InterfaceError"),
        stand_in("pymysql.err.Error", "pymysql.err.OperationalError", args=(2003, "cannot connect")),
        stand_in("pymysql.err.Error", "pymysql.err.OperationalError", args=(1213, "deadlock")),
        stand_in("mysql.connector.errors.Error", "mysql.connector.errors.InternalError", errno=1205),
        stand_in("sqlalchemy.exc.DBAPIError", "sqlalchemy.exc.OperationalError", orig=None),
        stand_in("sqlalchemy.exc.DBAPIError", orig=ConnectionResetError()),
        stand_in("sqlalchemy.exc.TimeoutError"),
        stand_in("django.db.utils.DatabaseError", "django.db.utils.OperationalError"),
        stand_in("pymongo.errors.ConnectionFailure", "pymongo.errors.AutoReconnect"),
    ],
    "Message queue errors (RabbitMQ, Kafka timeouts)": [
        stand_in("pika.exceptions.AMQPError", "pika.exceptions.AMQPConnectionError"),
        stand_in("pika.exceptions.AMQPConnectionError", "pika.exceptions.StreamLostError"),
        stand_in("aiormq.exceptions.AMQPConnectionError", base=ConnectionError),
        stand_in("aiormq.exceptions.ChannelInvalidStateError", base=RuntimeError),
        stand_in("kafka.errors.KafkaError", "kafka.errors.KafkaTimeoutError"),
        stand_in("kafka.errors.KafkaError", "kafka.errors.NotLeaderForPartitionError", retriable=True),
        stand_in("aiokafka.errors.KafkaError", "aiokafka.errors.KafkaConnectionError", base=RuntimeError),
        stand_in("nats.errors.Error", "nats.errors.NoServersError"),
        stand_in("kombu.exceptions.KombuError", "kombu.exceptions.OperationalError"),
    ],
    "Cloud storage errors (S3, GCS 503 Service Unavailable)": [
        aws(503, "ServiceUnavailable"),
        aws(503, "SomethingNew"),
        aws(400, "RequestTimeout"),
        aws(400, "ThrottlingException"),
        aws(503, "SlowDown"),
        stand_in("botocore.exceptions.BotoCoreError", "botocore.exceptions.HTTPClientError"),
        stand_in("minio.error.S3Error", code="SlowDown"),
        stand_in("google.api_core.exceptions.GoogleAPICallError", "google.api_core.Down", code=503),
        stand_in("azure.core.exceptions.HttpResponseError", status_code=503),
        stand_in("azure.core.exceptions.ServiceRequestError"),
    ],
    "Out of memory (temporary)": [MemoryError(), OSError(errno.ENOMEM, "memory")],
    "Resource temporarily unavailable": [
        BlockingIOError(errno.EAGAIN, "again"),
        OSError(errno.EAGAIN, "again"),
        BrokenProcessPool("a child died"),
        errors.ProcessDied("exit code -9"),
    ],
}

PERMANENT_LINES = {
    "Missing required payload fields": [KeyError("to"), raised(Model), AttributeError("to")],
    "Invalid data types": [TypeError("int + str"), ValueError("not a date"), raised(int, "x")],
    "Failed schema validation": [
        raised(jsonschema.validate, {}, {"required": ["to"]}),
        raised(msgspec.convert, {"to": 1}, dict[str, str]),
        raised(Model.model_validate, {"to": []}),
        stand_in("marshmallow.exceptions.ValidationError"),
    ],
    "HTTP 401 Unauthorized": [with_status(401)],
    "HTTP 403 Forbidden": [with_status(403), PermissionError(errno.EACCES, "denied")],
    "Invalid API credentials": [
        redis.AuthenticationError("wrong password"),
        aws(403, "InvalidAccessKeyId"),
        stand_in("pika.exceptions.AMQPConnectionError", "pika.exceptions.ProbableAuthenticationError"),
        stand_in("psycopg.Error", "psycopg.OperationalError", "psycopg.errors.Password", sqlstate="28P01"),
        stand_in("pymysql.err.Error", "pymysql.err.OperationalError", args=(1045, "access denied")),
    ],
    "HTTP 404 Not Found": [with_status(404), aws(404, "NoSuchKey")],
    "Missing required resources": [
        FileNotFoundError(errno.ENOENT, "gone"),
        raised(open, "/nowhere/at/all"),
        ImportError("no module"),
    ],
    "Invalid business rules": [AssertionError("balance < 0"), stand_in("shop.errors.OutOfStock")],
    "Data integrity violations": [
        stand_in("psycopg.Error", "psycopg.DatabaseError", "psycopg.IntegrityError", sqlstate="23505"),
        stand_in("asyncpg.exceptions._base.PostgresError", "asyncpg.exceptions.Unique", sqlstate="23505"),
        stand_in("psycopg.Error", "psycopg.OperationalError", "psycopg.errors.Violation", sqlstate="40002"),
        stand_in("sqlalchemy.exc.DBAPIError", "sqlalchemy.exc.IntegrityError", orig=ConnectionError()),
        stand_in("django.db.utils.DatabaseError", "django.db.utils.IntegrityError"),
        ssl.SSLCertVerificationError(1, "certificate has expired"),
    ],
    "Unsupported operations": [NotImplementedError(), raised(io.StringIO().fileno)],
    "Invalid JSON payload": [raised(json.loads, "{to:"), raised(b"\xff".decode)],
    "Default: permanent": [Exception("what?"), RuntimeError("what?"), OSError("no number")],
}


def lines(table: dict[str, list[BaseException]]) -> list[Any]:
    return [
        pytest.param(error, id=f"{line}: {type(error).__module__}.{type(error).__qualname__} {number}")
        for line, found in table.items()
        for number, error in enumerate(found)
    ]


@pytest.mark.parametrize("error", lines(TRANSIENT_LINES))
def test_what_will_pass_is_transient(error: BaseException) -> None:
    assert classify(error) is TRANSIENT


@pytest.mark.parametrize("error", lines(PERMANENT_LINES))
def test_what_will_not_pass_is_permanent(error: BaseException) -> None:
    assert classify(error) is PERMANENT


# -- mail, gRPC, Kafka: codes that read otherwise than HTTP's


@pytest.mark.parametrize(("code", "verdict"), [(421, TRANSIENT), (451, TRANSIENT), (535, PERMANENT)])
@pytest.mark.parametrize("attribute", ["smtp_code", "code"])
def test_mail_servers_say_later_with_4xx_never_with_5xx(
    attribute: str, code: int, verdict: FailureKind
) -> None:
    library = "smtplib" if attribute == "smtp_code" else "aiosmtplib.errors"
    assert classify(stand_in(f"{library}.SMTPResponseException", **{attribute: code})) is verdict


def test_mail_refused_for_now_by_all_recipients_is_transient() -> None:
    later, never = {"a@b.c": (450, b"later")}, {"d@e.f": (550, b"no")}
    assert classify(smtplib.SMTPRecipientsRefused(later)) is TRANSIENT
    assert classify(smtplib.SMTPRecipientsRefused({**later, **never})) is PERMANENT
    assert classify(smtplib.SMTPServerDisconnected("gone")) is TRANSIENT


class Code:
    def __init__(self, name: str) -> None:
        self.named = name

    def name(self) -> str:
        return self.named

    def retriable(self) -> bool:
        return False


@pytest.mark.parametrize(("name", "verdict"), [("_TIMED_OUT", TRANSIENT), ("MSG_SIZE_TOO_LARGE", PERMANENT)])
def test_confluents_kafka_errors_are_judged_by_their_code(name: str, verdict: FailureKind) -> None:
    assert classify(stand_in("cimpl.KafkaException", args=(Code(name),))) is verdict


@pytest.mark.parametrize(("name", "verdict"), [("UNAVAILABLE", TRANSIENT), ("INVALID_ARGUMENT", PERMANENT)])
def test_grpc_errors_are_judged_by_their_status(name: str, verdict: FailureKind) -> None:
    status = type("Status", (), {"name": name})()
    assert classify(stand_in("grpc.RpcError", "grpc.aio._call.AioRpcError", code=lambda: status)) is verdict


def test_a_certificate_nobody_trusts_is_permanent_however_deep_a_client_wraps_it() -> None:
    distrust = ssl.SSLCertVerificationError(1, "self-signed certificate")
    inner = stand_in("httpcore.NetworkError", "httpcore.ConnectError")
    inner.__cause__ = distrust
    outer = httpx.ConnectError("certificate verify failed")
    outer.__cause__ = inner
    handshake = stand_in("urllib3.exceptions.SSLError", args=(distrust,))
    pooled = stand_in("urllib3.exceptions.MaxRetryError", reason=handshake)
    found = [outer, requests.exceptions.SSLError(pooled), urllib.error.URLError(distrust)]
    assert [classify(error) for error in found] == [PERMANENT] * 3


# -- what handlers say


def test_what_a_handler_says_outweighs_what_it_raises_from() -> None:
    final = errors.Unrecoverable("never")
    final.__cause__ = ConnectionError()
    again = errors.Transient("once more")
    again.__cause__ = ValueError()
    assert (classify(final), classify(again)) == (PERMANENT, TRANSIENT)


def test_an_unrecoverable_error_of_another_library_is_known_by_its_name() -> None:
    theirs = type("UnrecoverableError", (ConnectionError,), {})
    assert classify(theirs()) is PERMANENT


def test_our_own_errors_have_a_verdict_each() -> None:
    found = {
        "Refused": classify(errors.InvalidOptions("bad")),
        "JobCancelled": classify(errors.JobCancelled()),
        "LockMissing": classify(errors.LockMissing("1")),
        "RedisConnectionError": classify(errors.RedisConnectionError("gone")),
        "RedisResponseError": classify(errors.RedisResponseError("NOPERM")),
        "Postpone": classify(errors.Postpone(5)),
    }
    assert found == {
        "Refused": PERMANENT,
        "JobCancelled": PERMANENT,
        "LockMissing": TRANSIENT,
        "RedisConnectionError": TRANSIENT,
        "RedisResponseError": PERMANENT,
        "Postpone": TRANSIENT,
    }


# -- chains and groups


def chained(outer: BaseException, cause: BaseException) -> BaseException:
    outer.__cause__ = cause
    return outer


def test_an_unknown_wrapper_is_judged_by_its_cause() -> None:
    assert classify(chained(RuntimeError("sync failed"), ConnectionError())) is TRANSIENT
    assert classify(chained(Declined(), chained(RuntimeError(), TimeoutError()))) is TRANSIENT
    assert classify(chained(RuntimeError("sync failed"), KeyError("to"))) is PERMANENT


def test_a_known_error_speaks_for_itself_whatever_caused_it() -> None:
    assert classify(chained(ValueError("bad reply"), ConnectionError())) is PERMANENT
    assert classify(chained(TimeoutError(), ValueError())) is TRANSIENT


def test_a_mere_context_is_not_asked() -> None:
    def stumbles() -> None:
        try:
            raise ConnectionError
        except ConnectionError:
            raise RuntimeError("a bug in the except block")  # noqa: B904

    error = raised(stumbles)
    assert isinstance(error.__context__, ConnectionError)
    assert classify(error) is PERMANENT


def test_a_chain_that_bites_its_tail_ends() -> None:
    one, two = RuntimeError(1), RuntimeError(2)
    one.__cause__, two.__cause__ = two, one
    assert classify(one) is PERMANENT
    group = ExceptionGroup("all", [one])
    two.__cause__ = group
    assert classify(group) is PERMANENT


def test_a_chain_of_two_thousand_is_not_too_long() -> None:
    error: BaseException = ConnectionError()
    for _ in range(2_000):
        error = chained(RuntimeError(), error)
    assert classify(error) is TRANSIENT


def test_a_group_is_transient_only_if_all_in_it_are() -> None:
    passing, bad = [ConnectionError(), TimeoutError()], ValueError()
    assert classify(ExceptionGroup("g", passing)) is TRANSIENT
    assert classify(ExceptionGroup("g", [*passing, bad])) is PERMANENT
    assert classify(ExceptionGroup("g", [*passing, RuntimeError("unknown")])) is PERMANENT
    assert classify(ExceptionGroup("g", [ExceptionGroup("h", passing), MemoryError()])) is TRANSIENT
    assert classify(BaseExceptionGroup("g", [asyncio.CancelledError()])) is TRANSIENT
    assert classify(ExceptionGroup("g", [*passing, errors.Unrecoverable()])) is PERMANENT


def test_errors_of_one_group_may_share_a_cause() -> None:
    cause = ConnectionError()
    assert classify(ExceptionGroup("g", [chained(RuntimeError(n), cause) for n in range(3)])) is TRANSIENT


# -- the user's own rules


class Declined(Exception):
    pass


class InsufficientFunds(Declined):
    pass


def test_own_rules_are_asked_before_the_table() -> None:
    rules = classifier(retry_on=[ValueError], give_up_on=[ConnectionError])
    assert (rules(ValueError()), rules(ConnectionError())) == (TRANSIENT, PERMANENT)
    assert (rules(TimeoutError()), rules(TypeError())) == (TRANSIENT, PERMANENT)


def test_own_rules_hold_for_subclasses_and_the_most_specific_wins() -> None:
    rules = classifier(retry_on=[Declined], give_up_on=[InsufficientFunds])
    assert (rules(Declined()), rules(InsufficientFunds())) == (TRANSIENT, PERMANENT)


def test_own_rules_may_name_a_class_that_is_not_imported_and_hide_its_private_module() -> None:
    rules = classifier(retry_on="stripe.RateLimitError", give_up_on=["httpx.ReadTimeout"])
    assert rules(stand_in("stripe._error.RateLimitError")) is TRANSIENT
    assert rules(stand_in("other.RateLimitError")) is PERMANENT
    assert rules(httpx.ReadTimeout("slow")) is PERMANENT


def test_own_rules_reach_causes_and_groups() -> None:
    rules = classifier(retry_on=[Declined])
    assert rules(chained(RuntimeError(), Declined())) is TRANSIENT
    assert rules(ExceptionGroup("g", [Declined(), ConnectionError()])) is TRANSIENT


def test_own_rules_do_not_outweigh_what_a_handler_says() -> None:
    rules = classifier(retry_on=[Exception], give_up_on=["builtins.OSError"])
    assert rules(errors.Unrecoverable()) is PERMANENT
    assert rules(errors.Transient()) is TRANSIENT


@pytest.mark.parametrize("bad", [int, 5, "TimeoutError", "", "...", None])
def test_a_rule_that_is_no_exception_is_refused_with_the_way_out(bad: Any) -> None:
    with pytest.raises(InvalidOptions, match="use a class, or its full name"):
        classifier(retry_on=[bad])


def test_a_rule_on_both_sides_is_refused() -> None:
    with pytest.raises(InvalidOptions, match="both retry_on and give_up_on"):
        classifier(retry_on=[Declined], give_up_on=[Declined])


def test_rules_are_a_value() -> None:
    assert classifier(retry_on=[Declined]) == classifier(retry_on=Declined)
    assert isinstance(classifier(), ErrorRules)


# -- foreign errors that misbehave


class Trap(Exception):
    @property
    def response(self) -> Any:
        raise RuntimeError("not read yet")

    status = math.nan
    status_code = True


def test_attributes_that_raise_or_mean_something_else_are_no_verdict() -> None:
    assert classify(Trap()) is PERMANENT


def test_a_status_counts_on_errors_nobody_registered() -> None:
    assert classify(stand_in("acme.ApiError", status=503)) is TRANSIENT
    assert classify(stand_in("acme.ApiError", status_code=404)) is PERMANENT
    assert classify(stand_in("acme.ApiError", response=type("R", (), {"status": 502})())) is TRANSIENT
    # `code` is too common a name to mean HTTP
    assert classify(stand_in("acme.ApiError", code=503)) is PERMANENT


def test_classifying_imports_no_foreign_library() -> None:
    program = (
        "import sys; from corral.core.retry import classify; classify(OSError()); "
        "print({'httpx', 'requests', 'urllib3', 'aiohttp', 'jsonschema', 'sqlite3'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
