"""Retry: whether a failure is worth another attempt (classification), and when (backoff)."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from math import floor
from typing import Any

from msgspec import Struct

from corral.core import known_errors
from corral.core.job import Backoff, Job
from corral.core.known_errors import KNOWN_ERRORS, FailureKind, KnownError, Wrapper
from corral.errors import InvalidOptions, Transient, Unrecoverable

BACKOFF_CAP_MS = 3_600_000
LONGEST_DELAY_MS = 2**53 - 1
"""Without a cap: the longest that every peer reads exactly."""

ErrorName = type[BaseException] | str
Errors = Iterable[ErrorName] | ErrorName
"""Exception classes, or their full names."""
BackoffRule = Callable[[int, str, BaseException, Job], int | timedelta]
"""(attempts made, backoff kind, error, job) -> ms or a timedelta; -1 for no more attempts."""


# -- classification -----------------------------------------------------------------------------------------


Rules = Mapping[ErrorName, FailureKind]


class ErrorRules(Struct, frozen=True):
    """A classifier with a user's own rules before the table; made by `classifier`, called by a worker."""

    layers: tuple[Rules, ...]
    """The first that has a rule for an error decides: those of a job come before those of its app."""
    unknown: FailureKind = FailureKind.PERMANENT
    """The kind of errors that no rule and no entry of the table fits."""

    def __call__(self, error: BaseException) -> FailureKind:
        return self.known(error) or self.unknown

    def known(self, error: BaseException) -> FailureKind | None:
        """Return the kind of an error by a rule or by the table; None where neither knows it."""
        return _classify(error, self, frozenset())

    def own(self, error: BaseException) -> FailureKind | None:
        """Return the kind of an error by a rule of the user's own."""
        return kind_by_handler(error) or _by_rules(error, self)

    def before(self, retry_on: Errors, give_up_on: Errors) -> "ErrorRules":
        """Return these rules behind others, which come first."""
        first = _rules(retry_on, give_up_on)
        return ErrorRules((first, *self.layers), self.unknown) if first else self


def classify(error: BaseException) -> FailureKind:
    """Return whether another attempt may succeed.

    In this order: what the handler said (`Unrecoverable`, `Transient`); for a group, transient only
    if all in it are; the table, by the class's full name and then its bases'; an HTTP status that
    the error or its response carries; for an unknown error, its `__cause__` (`raise X from Y`: a
    wrapper of one's own says nothing about the fault inside, while a known X decides by itself;
    `__context__` is never used). What stays unknown is permanent: a retry that cannot help only
    hides the error for longer.

    >>> classify(ConnectionResetError()), classify(KeyError("to"))
    (<FailureKind.TRANSIENT: 'transient'>, <FailureKind.PERMANENT: 'permanent'>)
    """
    return _classify(error, None, frozenset()) or FailureKind.PERMANENT


def classifier(
    retry_on: Errors = (), give_up_on: Errors = (), unknown: FailureKind = FailureKind.PERMANENT
) -> ErrorRules:
    """Return a classifier with one's own rules before the table: exception classes, or their full names.

    Subclasses are included, and the most specific class decides. A name needs no import:
    `"stripe.RateLimitError"` also fits a class that lives in a module below `stripe`.

    >>> rules = classifier(retry_on=[LookupError], give_up_on=["builtins.ConnectionRefusedError"])
    >>> rules(KeyError("x")), rules(ConnectionRefusedError())
    (<FailureKind.TRANSIENT: 'transient'>, <FailureKind.PERMANENT: 'permanent'>)
    """
    return ErrorRules((_rules(retry_on, give_up_on),), unknown)


def _rules(retry_on: Errors, give_up_on: Errors) -> Rules:
    kinds: dict[ErrorName, FailureKind] = {}
    for names, kind in ((retry_on, FailureKind.TRANSIENT), (give_up_on, FailureKind.PERMANENT)):
        for error in (names,) if isinstance(names, str | type) else names:
            _check_rule(error)
            if kinds.setdefault(error, kind) is not kind:
                raise InvalidOptions(f"{error!r} is in both retry_on and give_up_on; keep it in one of them")
    return kinds


def kind_by_handler(error: BaseException) -> FailureKind | None:
    """Return what the handler said: `Transient`, or `Unrecoverable` (by name too, as in BullMQ's clients)."""
    if isinstance(error, Transient):
        return FailureKind.TRANSIENT
    if isinstance(error, Unrecoverable) or any(
        cls.__name__ == "UnrecoverableError" for cls in type(error).__mro__
    ):
        return FailureKind.PERMANENT
    return None


def _check_rule(error: object) -> None:
    if isinstance(error, type) and issubclass(error, BaseException):
        return
    if not isinstance(error, str) or "." not in error.strip("."):
        raise InvalidOptions(
            f"{error!r} is no exception; use a class, or its full name such as 'httpx.ReadTimeout'"
        )


def _classify(error: BaseException, rules: ErrorRules | None, seen: frozenset[int]) -> FailureKind | None:
    """Classify an error, or else its cause; `seen` ends a chain that leads back to itself."""
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen |= {id(cause)}
        kind = _classify_alone(cause, rules, seen)
        if kind is not None:
            return kind
        cause = cause.__cause__
    return None


def _classify_alone(
    error: BaseException, rules: ErrorRules | None, seen: frozenset[int]
) -> FailureKind | None:
    """Classify this one error, without its cause."""
    kind = kind_by_handler(error) or (_by_rules(error, rules) if rules else None)
    if kind is not None:
        return kind
    if isinstance(error, BaseExceptionGroup):
        kinds = {_classify(inner, rules, seen) for inner in error.exceptions}
        return FailureKind.TRANSIENT if kinds == {FailureKind.TRANSIENT} else FailureKind.PERMANENT
    return _by_table(error, rules, seen) or _kind(known_errors.by_status(error))


def _by_rules(error: BaseException, rules: ErrorRules) -> FailureKind | None:
    for kinds in rules.layers:
        if kinds:
            for cls in type(error).__mro__:
                keys: tuple[Any, ...] = (cls, *_names(cls))
                for key in keys:
                    if key in kinds:
                        return kinds[key]
    return None


def _by_table(error: BaseException, rules: ErrorRules | None, seen: frozenset[int]) -> FailureKind | None:
    for cls in type(error).__mro__:
        for name in _names(cls):
            if name in KNOWN_ERRORS:
                kind = _by_entry(KNOWN_ERRORS[name], error, rules, seen)
                if kind is not None:
                    return kind
    return None


def _by_entry(
    entry: KnownError, error: BaseException, rules: ErrorRules | None, seen: frozenset[int]
) -> FailureKind | None:
    if isinstance(entry, FailureKind):
        return entry
    if not isinstance(entry, Wrapper):
        return _kind(entry(error))
    for inner in _wrapped(error):
        kind = _classify(inner, rules, seen)
        if kind is not None:
            return kind
    return entry.otherwise


def _wrapped(error: Any) -> Iterator[BaseException]:
    """Yield the errors a wrapper carries: by its own attribute, as an argument, as cause or context."""
    orig, reason = known_errors.read(lambda: error.orig), known_errors.read(lambda: error.reason)
    yield from (one for one in (orig, reason, *error.args, error.__cause__) if isinstance(one, BaseException))
    if error.__context__ is not None and not error.__suppress_context__:
        yield error.__context__


def _names(cls: type) -> Iterator[str]:
    """Yield a class's full name, then the same as if it lived in each package above its module.

    Libraries keep `httpx.ReadTimeout` in `httpx._exceptions`: the public name must fit both.
    """
    module = cls.__module__
    while module:
        yield f"{module}.{cls.__qualname__}"
        module = module.rpartition(".")[0]


def _kind(is_transient: bool | None) -> FailureKind | None:
    if is_transient is None:
        return None
    return FailureKind.TRANSIENT if is_transient else FailureKind.PERMANENT


# -- backoff ------------------------------------------------------------------------------------------------


def backoff_ms(
    backoff: Backoff,
    attempts_made: int,
    cap: int | None = BACKOFF_CAP_MS,
    random: Callable[[], float] = lambda: 1.0,
) -> int:
    """Return the milliseconds to wait after `attempts_made` failed attempts.

    The cap bounds delays that grow; a fixed delay is kept as given. Jitter takes away at most its
    share of the delay, by the formula of BullMQ 5.62.0.

    >>> [backoff_ms(Backoff("exponential", 1000), n) for n in (1, 2, 11, 12, 13)]
    [1000, 2000, 1024000, 2048000, 3600000]
    """
    delay = backoff.delay
    if backoff.kind == "exponential":
        # 2^53 is past any calendar: a bound on the exponent keeps the integer small
        delay = min(delay * 2 ** min(max(attempts_made - 1, 0), 53), LONGEST_DELAY_MS if cap is None else cap)
    if backoff.jitter > 0:
        lowest = delay * (1 - backoff.jitter)
        delay = floor(random() * delay * backoff.jitter + lowest)
    return delay


class UnknownBackoff(LookupError):
    """The kind of a job's backoff has no rule in this worker."""


def delay_before(
    job: Job,
    attempts_made: int,
    error: BaseException,
    rule: BackoffRule | None,
    cap: int | None,
    random: Callable[[], float],
) -> int:
    """Return the milliseconds before the next attempt of `job`; negative where the rule says "no more".

    A rule of one's own may grow exponentially, so the cap holds for it too.
    """
    backoff = job.options.backoff
    if backoff is None:
        return 0
    if backoff.kind in ("fixed", "exponential"):
        return backoff_ms(backoff, attempts_made, cap, random)
    if rule is None:
        raise UnknownBackoff(
            f"backoff {backoff.kind!r} needs a rule, and this worker has none; give it by Corral(backoff=…)"
        )
    delay = rule(attempts_made, backoff.kind, error, job)
    if isinstance(delay, timedelta):
        delay //= timedelta(milliseconds=1)
    return min(int(delay), LONGEST_DELAY_MS if cap is None else cap)
