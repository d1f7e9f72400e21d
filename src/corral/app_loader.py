"""Import the app that a command names as `module:name`."""

import importlib
import os
import sys
import traceback
from operator import attrgetter
from pathlib import Path
from types import ModuleType

from corral.app import Corral
from corral.errors import CorralError, InvalidOptions, Refused
from corral.store.address import without_password

DEFAULT_NAME = "app"


class AppNotFound(Refused):
    """There is no such app."""


class BrokenModule(CorralError):
    """The module exists, but importing it fails."""


def load_app(reference: str, url: str | None = None) -> Corral:
    """Import the Corral that `module:name` refers to; the current directory is searched first.

    `url` is for a Corral without an address of its own; one that has another is refused.

    >>> load_app("shop.mail:app")   # doctest: +SKIP
    """
    module_name, _, path = reference.partition(":")
    if not module_name or not all(part.isidentifier() for part in module_name.split(".")):
        raise AppNotFound(
            f"{reference!a} is not an app; write module:name, such as shop.mail:app for `app` in shop/mail.py"
        )
    if url is not None:
        os.environ["REDIS_URL"] = url  # a Corral without an address of its own reads it
    directory = str(Path.cwd())
    if directory not in sys.path:
        sys.path.insert(0, directory)
    module = _import(module_name)
    path = path or DEFAULT_NAME
    try:
        value: object = attrgetter(path)(module)
    except AttributeError:
        raise AppNotFound(f"module {module_name!r} has no {path!r}; {_way_out(module)}") from None
    if not isinstance(value, Corral):
        raise AppNotFound(f"{reference!r} is a {type(value).__name__}, not a Corral; {_way_out(module)}")
    if url is not None and value.url != url:
        raise InvalidOptions(
            f"{reference} has an address of its own, {without_password(value.url)}, which --url cannot "
            f"change; leave --url out, or write Corral() without one"
        )
    return value


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # the module itself (or a package around it), not something that it imports
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise AppNotFound(
                f"there is no module {name!r} here ({Path.cwd()}) or among the installed packages; "
                f"start the worker where the module is, or put that directory on PYTHONPATH"
            ) from None
        raise _broken(name, error) from error
    except Exception as error:
        raise _broken(name, error) from error


def _broken(name: str, error: Exception) -> BrokenModule:
    broken = BrokenModule(f"importing {name!r} fails: {type(error).__name__}: {error}")
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, SyntaxError):
        broken.add_note(f"  {error.filename}, line {error.lineno}")
    elif own := [frame for frame in frames if not frame.filename.startswith("<frozen")]:
        broken.add_note(f"  {own[-1].filename}, line {own[-1].lineno}: {own[-1].line}")
    return broken


def _way_out(module: ModuleType) -> str:
    names = [name for name, value in vars(module).items() if isinstance(value, Corral)]
    if names:
        return f"use {' or '.join(f'{module.__name__}:{name}' for name in names)}"
    return "it has no Corral at its top level; write app = Corral(…) there"
