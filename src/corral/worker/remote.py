"""Errors on their way from a child process to its parent, without pickle."""

import sys
from typing import Any

import msgspec

from corral.errors import CorralError, Refused

_PLAIN = (str, int, float, bool, bytes, type(None))


class RemoteError(msgspec.Struct, frozen=True):
    """An exception as it is told through the pipe."""

    line: list[tuple[str, str]]
    """Module and name of its class and of each class above, nearest first."""
    text: str
    arguments: list[Any]
    attributes: dict[str, Any]
    trace: str
    verdict: str | None = None
    """What the default table, asked where the error's own library is loaded, says of it."""


def describe(error: BaseException, trace: str, verdict: str | None) -> RemoteError:
    """What can be told of `error`; the only one inside a group speaks for it."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return RemoteError(
        line=[(cls.__module__, cls.__qualname__) for cls in type(error).__mro__ if cls is not object],
        text=_text(error),
        arguments=list(error.args) if all(isinstance(value, _PLAIN) for value in error.args) else [],
        attributes={name: value for name, value in vars(error).items() if isinstance(value, _PLAIN)},
        trace=trace,
        verdict=verdict,
    )


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return type(error).__name__


def rebuild(told: RemoteError) -> BaseException:
    """An exception like the one that was described: its class where this process knows it, else the
    nearest class above that it knows, under the name it had.

    Only classes that are loaded here already are looked up, and none of their constructors is run.
    """
    for nearest, (module, name) in enumerate(told.line):
        known = _loaded(module, name)
        if known is None:
            continue
        error = _blank(known, told, stand_in=nearest > 0)
        if error is not None:
            return error
    return CorralError(told.text)


def _loaded(module: str, name: str) -> type[BaseException] | None:
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, type) and issubclass(found, BaseException) else None


def _blank(known: type[BaseException], told: RemoteError, stand_in: bool) -> BaseException | None:
    name = told.line[0][1].rpartition(".")[2] if stand_in else known.__name__
    text = told.text
    body: dict[str, Any] = {"__str__": lambda self: text, "__module__": told.line[0][0]}
    try:
        mirror = type(name, (known,), body)
        error: BaseException = mirror.__new__(mirror, *told.arguments)
        error.__dict__.update(told.attributes)
    except Exception:
        return None
    return error


def refusal(error: BaseException) -> dict[str, str]:
    """How the parent tells a child that its word was not taken."""
    return {"module": type(error).__module__, "name": type(error).__qualname__, "text": _text(error)}


def raised(told: dict[str, str]) -> BaseException:
    """The refusal as an exception in the child."""
    known = _loaded(told["module"], told["name"])
    if known is not None and issubclass(known, CorralError):
        error = known.__new__(known, told["text"])
        error.args = (told["text"],)
        return error
    return Refused(f"{told['name']}: {told['text']}")
