"""Prints what a package of BullMQ's kind offers: names, methods and their arguments; options; defaults."""

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


def defaults(package: str) -> dict[str, dict[str, str]]:
    """Of each method, what an argument is that nobody gives; no options and empty ones are the same."""
    found: dict[str, dict[str, str]] = {}
    for name, kind in vars(importlib.import_module(package)).items():
        if not inspect.isclass(kind):
            continue
        for method, member in inspect.getmembers(kind, callable):
            if method != "__init__" and (method.startswith("_") or hasattr(BaseException, method)):
                continue
            if not inspect.isfunction(member) and not inspect.ismethod(member):
                continue
            given = inspect.signature(member).parameters.values()
            usual = {each.name: repr(each.default) for each in given if each.default is not each.empty}
            if usual:
                found[f"{name}.{method}"] = {
                    name: "None" if value == "{}" else value for name, value in usual.items()
                }
    return found


def options(package: str) -> dict[str, list[str]]:
    """The names of the options of each kind that has a type."""
    types = vars(importlib.import_module(f"{package}.types"))
    return {name: sorted(kind.__annotations__) for name, kind in types.items() if inspect.isclass(kind)}


def refusals() -> dict[str, list[str]]:
    """What the official client raises for each number that a script refuses with."""
    from bullmq.error_code import ErrorCode  # type: ignore[import-not-found,unused-ignore]
    from bullmq.scripts import Scripts  # type: ignore[import-not-found,unused-ignore]

    asked = {"jobId": "7", "parentKey": "bull:mail:7", "command": "moveToFinished", "state": "active"}
    errors = {code: Scripts.finishedErrors(None, {**asked, "code": code.value}) for code in ErrorCode}
    return {code.name: [str(code.value), type(error).__name__, str(error)] for code, error in errors.items()}


if __name__ == "__main__":
    package = sys.argv[1]
    told = {"defaults": defaults(package), "options": options(package), "refusals": refusals()}
    found = told if sys.argv[2:] == ["more"] else surface(package)
    print(json.dumps(found, indent=1, sort_keys=True))
