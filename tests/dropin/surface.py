"""Print the public surface of a package of BullMQ's kind: classes, methods, arguments, options, defaults."""

import importlib
import inspect
import json
import sys


def arguments(function) -> list[str]:
    """Return the names of a function's arguments, in order, without `self`."""
    names = list(inspect.signature(function).parameters)
    return [name for name in names if name not in ("self", "cls")]


def methods(kind: type) -> dict[str, list[str]]:
    """Return the arguments of a class's public methods and of `__init__`, without those of exceptions."""
    members = {"__init__": arguments(kind.__init__)} if inspect.isfunction(kind.__init__) else {}
    for name, member in inspect.getmembers(kind):
        if name.startswith("_") or hasattr(BaseException, name):
            continue
        if isinstance(member, property) or not callable(member):
            members[name] = []
        else:
            members[name] = arguments(member)
    return members


def surface(package: str) -> dict[str, dict[str, list[str]]]:
    """Return the methods of each class that the package exports."""
    module = importlib.import_module(package)
    kinds = {name: kind for name, kind in vars(module).items() if inspect.isclass(kind)}
    return {name: methods(kind) for name, kind in sorted(kinds.items()) if not name.startswith("_")}


def defaults(package: str) -> dict[str, dict[str, str]]:
    """Return the defaults of each method's arguments; None and empty options count as the same."""
    by_method: dict[str, dict[str, str]] = {}
    for name, kind in vars(importlib.import_module(package)).items():
        if not inspect.isclass(kind):
            continue
        for method, member in inspect.getmembers(kind, callable):
            if method != "__init__" and (method.startswith("_") or hasattr(BaseException, method)):
                continue
            if not inspect.isfunction(member) and not inspect.ismethod(member):
                continue
            parameters = inspect.signature(member).parameters.values()
            usual = {each.name: repr(each.default) for each in parameters if each.default is not each.empty}
            if usual:
                by_method[f"{name}.{method}"] = {
                    name: "None" if value == "{}" else value for name, value in usual.items()
                }
    return by_method


def options(package: str) -> dict[str, list[str]]:
    """Return the option names of each class in `types`."""
    types = vars(importlib.import_module(f"{package}.types"))
    return {name: sorted(kind.__annotations__) for name, kind in types.items() if inspect.isclass(kind)}


def refusals() -> dict[str, list[str]]:
    """Return the official client's error for each code: number, type and message."""
    from bullmq.error_code import ErrorCode  # type: ignore[import-not-found,unused-ignore]
    from bullmq.scripts import Scripts  # type: ignore[import-not-found,unused-ignore]

    details = {"jobId": "7", "parentKey": "bull:mail:7", "command": "moveToFinished", "state": "active"}
    errors = {code: Scripts.finishedErrors(None, {**details, "code": code.value}) for code in ErrorCode}
    return {code.name: [str(code.value), type(error).__name__, str(error)] for code, error in errors.items()}


if __name__ == "__main__":
    package = sys.argv[1]
    details = {"defaults": defaults(package), "options": options(package), "refusals": refusals()}
    document = details if sys.argv[2:] == ["details"] else surface(package)
    print(json.dumps(document, indent=1, sort_keys=True))
