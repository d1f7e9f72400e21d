"""Routing: the target of a job, and the rule that matches it with a worker."""

import reprlib
from typing import Any

from msgspec import Struct

from corral.errors import InvalidOptions

MODES = ("all", "any")
CRITERIA = ("stack", "capabilities", "region")
PARTS = ("server", *CRITERIA, "mode")


class Target(Struct, frozen=True, kw_only=True):
    """The worker a job needs; empty criteria are ignored, and a target without any fits every worker."""

    server: str = ""
    stack: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    region: tuple[str, ...] = ()
    mode: str = "all"


class Identity(Struct, frozen=True, kw_only=True):
    """A worker's id, stack, capabilities and region."""

    server: str
    stack: frozenset[str] = frozenset()
    capabilities: frozenset[str] = frozenset()
    region: frozenset[str] = frozenset()


ANYONE = Target()


def fits(worker: Identity, target: Target) -> bool:
    """Return whether the worker may have a job with this target.

    A server decides alone. Else stack and region fit if the worker's is among the target's; capabilities
    fit if the worker has all of them (mode `all`) or one of them (mode `any`); and the criteria that are
    not empty are joined by that same mode.

    >>> gpu = Target(capabilities=("gpu", "cuda"), region=("us-east",))
    >>> worker = Identity(server="w1", capabilities=frozenset({"gpu"}), region=frozenset({"us-east"}))
    >>> fits(worker, gpu)
    False
    """
    if target.server:
        return target.server == worker.server
    matches = []
    if target.stack:
        matches.append(not worker.stack.isdisjoint(target.stack))
    if target.capabilities:
        if target.mode == "all":
            matches.append(worker.capabilities.issuperset(target.capabilities))
        else:
            matches.append(not worker.capabilities.isdisjoint(target.capabilities))
    if target.region:
        matches.append(not worker.region.isdisjoint(target.region))
    if not matches:
        return True
    return all(matches) if target.mode == "all" else any(matches)


def read_target(value: Any) -> Target:
    """Return the target in a job's JSON, or raise `InvalidOptions` where it cannot be read.

    Missing, null and empty parts are ignored; a text counts as a list of one. Unknown parts, which other
    clients may have written, are ignored too.

    >>> read_target({"capabilities": "gpu", "mode": "any"}).capabilities
    ('gpu',)
    """
    if value is None or value == []:
        return ANYONE
    if not isinstance(value, dict):
        way_out = "use a dict such as {'capabilities': ['gpu']}"
        raise InvalidOptions(f"target is {reprlib.repr(value)}; {way_out}")
    server = value.get("server")
    if server is None:
        server = ""
    if not isinstance(server, str):
        raise InvalidOptions(f"target server is {reprlib.repr(server)}; use the id of one worker")
    if server:
        return Target(server=server)
    mode = value.get("mode")
    if mode is None:
        mode = "all"
    if mode not in MODES:
        raise InvalidOptions(f"target mode is {reprlib.repr(mode)}; use 'all' or 'any'")
    stack, capabilities, region = (_words(name, value.get(name)) for name in CRITERIA)
    return Target(stack=stack, capabilities=capabilities, region=region, mode=mode)


def check_target(value: Any) -> Target:
    """Return the target of a producer: as `read_target`, but unknown parts are refused.

    >>> check_target({"mode": "some"})
    Traceback (most recent call last):
    ...
    corral.errors.InvalidOptions: target mode is 'some'; use 'all' or 'any'
    """
    if isinstance(value, Target):
        value = write_target(value)
    target = read_target(value)
    for part in value or ():
        if part not in PARTS:
            raise InvalidOptions(f"target has {reprlib.repr(part)}; use {', '.join(map(repr, PARTS))}")
    if target.server and len([part for part in value if value[part]]) > 1:
        raise InvalidOptions(
            f"target names the server {target.server!r} and more besides; "
            f"a server decides alone: leave the rest out"
        )
    return target


def write_target(target: Target) -> dict[str, Any]:
    """Return the target for a job's JSON; empty where it fits every worker."""
    if target.server:
        return {"server": target.server}
    values = (target.stack, target.capabilities, target.region)
    criteria = {name: list(words) for name, words in zip(CRITERIA, values, strict=True) if words}
    return {**criteria, "mode": target.mode} if criteria else {}


def check_identity(server: Any, stack: Any = (), capabilities: Any = (), region: Any = ()) -> Identity:
    """Return a worker's identity; each part is a text or a list of texts.

    >>> check_identity("w1", "python", ["gpu"], "us-east").capabilities
    frozenset({'gpu'})
    """
    if not isinstance(server, str) or not server:
        raise InvalidOptions(f"server id is {reprlib.repr(server)}; use a text such as 'worker-1'")
    return Identity(
        server=server,
        stack=frozenset(_words("stack", stack, "worker")),
        capabilities=frozenset(_words("capabilities", capabilities, "worker")),
        region=frozenset(_words("region", region, "worker")),
    )


def _words(name: str, value: Any, whose: str = "target") -> tuple[str, ...]:
    if value is None or value == {}:
        return ()
    words: Any = [value] if isinstance(value, str) else value
    is_list = isinstance(words, list | tuple | set | frozenset)
    if not is_list or not all(isinstance(word, str) for word in words):
        raise InvalidOptions(f"{whose} {name} is {reprlib.repr(value)}; use a list of texts")
    return tuple(words)
