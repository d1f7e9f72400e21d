"""`module:app` on the command line becomes the Corral it names."""

import importlib
import sys
import traceback
from pathlib import Path
from types import ModuleType

from corral.app import Corral
from corral.errors import CorralError, Refused

USUAL_NAME = "app"


class NotFound(Refused):
    """There is no such app."""


class BrokenModule(CorralError):
    """The module is there, but importing it fails."""


def load(spelled: str) -> Corral:
    """The Corral that `module:name` names; the module is looked for in the current directory first.

    >>> load("shop.mail:app")   # doctest: +SKIP
    """
    module_name, _, path = spelled.partition(":")
    if not module_name or not all(part.isidentifier() for part in module_name.split(".")):
        raise NotFound(
            f"{spelled!a} is no app; write module:name, such as shop.mail:app for `app` in shop/mail.py"
        )
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    module = _module(module_name)
    found: object = module
    for part in (path or USUAL_NAME).split("."):
        if not hasattr(found, part):
            raise NotFound(f"module {module_name!r} has no {path or USUAL_NAME!r}; {_way_out(module)}")
        found = getattr(found, part)
    if not isinstance(found, Corral):
        raise NotFound(f"{spelled!r} is of type {type(found).__name__}, and no Corral; {_way_out(module)}")
    return found


def _module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # the module itself (or a package around it), not something that it imports
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise NotFound(
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
    elif theirs := [frame for frame in frames if not frame.filename.startswith("<frozen")]:
        broken.add_note(f"  {theirs[-1].filename}, line {theirs[-1].lineno}: {theirs[-1].line}")
    return broken


def _way_out(module: ModuleType) -> str:
    names = [name for name, value in vars(module).items() if isinstance(value, Corral)]
    if names:
        return f"use {' or '.join(f'{module.__name__}:{name}' for name in names)}"
    return "it makes no Corral at its top; write app = Corral(…) there"
