"""Groups of options: a parameter of a dataclass type is an option for each of its fields."""

import inspect
from collections.abc import Callable, Collection
from dataclasses import is_dataclass
from typing import Any


def option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with an option per field in place of each parameter of a dataclass type."""
    return with_groups(command, inspect.signature(command).parameters.values(), command.__doc__)


def with_groups(
    call: Callable[..., None], parameters: Collection[inspect.Parameter], doc: str | None
) -> Callable[..., None]:
    """Return a command with these parameters, those of a dataclass type replaced by an option per field."""
    types = {parameter.name: parameter.annotation for parameter in parameters}
    groups = {name: kind for name, kind in types.items() if isinstance(kind, type) and is_dataclass(kind)}
    fields = {name: inspect.signature(group).parameters for name, group in groups.items()}

    def command(**arguments: Any) -> None:
        for name, group in groups.items():
            arguments[name] = group(**{field: arguments.pop(field) for field in fields[name]})
        call(**arguments)

    # typer reads a command's parameters from its signature and its annotations
    flat = [
        field.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in sorted(parameters, key=lambda parameter: parameter.name in groups)
        for field in (fields[parameter.name].values() if parameter.name in groups else [parameter])
    ]
    command.__dict__["__signature__"] = inspect.Signature(flat)
    command.__annotations__ = {field.name: field.annotation for field in flat}
    command.__doc__ = doc
    return command
