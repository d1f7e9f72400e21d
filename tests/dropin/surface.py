"""Prints what a package of BullMQ's kind offers: its names, their methods and the arguments of these."""

import importlib
import inspect
import json
import sys


def arguments(function) -> list[str]:
    """The names of a function's arguments, in order, without `self`."""
    names = list(inspect.signature(function).parameters)
    return [name for name in names if name not in ("self", "cls")]


def methods(kind: type) -> dict[str, list[str]]:
    """The public methods of a class, without those of every exception; its own construction among them."""
    found = {"__init__": arguments(kind.__init__)} if inspect.isfunction(kind.__init__) else {}
    for name, member in inspect.getmembers(kind):
        if name.startswith("_") or hasattr(BaseException, name):
            continue
        if isinstance(member, property) or not callable(member):
            found[name] = []
        else:
            found[name] = arguments(member)
    return found


def surface(package: str) -> dict[str, dict[str, list[str]]]:
    """The classes one can import from the package itself."""
    module = importlib.import_module(package)
    kinds = {name: kind for name, kind in vars(module).items() if inspect.isclass(kind)}
    return {name: methods(kind) for name, kind in sorted(kinds.items()) if not name.startswith("_")}


if __name__ == "__main__":
    print(json.dumps(surface(sys.argv[1]), indent=1, sort_keys=True))
