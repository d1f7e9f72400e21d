"""Errors sent between a handler's process and its parent, without pickle."""

import sys
from operator import attrgetter
from typing import Any

import msgspec

from corral.errors import CorralError

_PLAIN = (str, int, float, bool, bytes, type(None))


class RemoteError(msgspec.Struct, frozen=True, tag=True):
    """An exception as it is sent."""

    classes: list[tuple[str, str]]
    """Module and name of its class and of each base class, nearest first."""
    text: str
    arguments: list[Any]
    attributes: dict[str, Any]
    trace: str
    kind: str | None = None
    """Its classification by the default table, made where the error's own library is loaded."""


def describe(error: BaseException, trace: str = "", kind: str | None = None) -> RemoteError:
    """Return what can be sent of `error`; of a group with a single error, that one."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return RemoteError(
        classes=[(cls.__module__, cls.__qualname__) for cls in type(error).__mro__ if cls is not object],
        text=_text(error),
        arguments=list(error.args) if all(isinstance(value, _PLAIN) for value in error.args) else [],
        attributes={name: value for name, value in vars(error).items() if isinstance(value, _PLAIN)},
        trace=trace,
        kind=kind,
    )


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return type(error).__name__


def rebuild(remote: RemoteError) -> BaseException:
    """Return an exception like the one described: of its class where this process has loaded it, else of
    the nearest base class, under the original's name.

    Only classes that are already loaded are used, and none of their constructors is run.
    """
    for distance, (module, name) in enumerate(remote.classes):
        cls = _loaded_class(module, name)
        error = None if cls is None else _instance(cls, remote, is_base=distance > 0)
        if error is not None:
            return error
    return CorralError(remote.text)


def _loaded_class(module: str, name: str) -> type[BaseException] | None:
    try:
        value = attrgetter(name)(sys.modules.get(module))
    except AttributeError:
        return None
    return value if isinstance(value, type) and issubclass(value, BaseException) else None


def _instance(cls: type[BaseException], remote: RemoteError, is_base: bool) -> BaseException | None:
    name = remote.classes[0][1].rpartition(".")[2] if is_base else cls.__name__
    body: dict[str, Any] = {"__str__": lambda _: remote.text, "__module__": remote.classes[0][0]}
    try:
        mirror = type(name, (cls,), body)
        error: BaseException = mirror.__new__(mirror, *remote.arguments)
        error.__dict__.update(remote.attributes)
    except Exception:
        return None
    return error
