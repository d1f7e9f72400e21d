"""Which worker a job may go to: the target a job names, and the one rule that compares it with a worker."""

import reprlib
from typing import Any

from msgspec import Struct

from corral.errors import InvalidOptions

MODES = ("all", "any")
CRITERIA = ("stack", "capabilities", "region")
PARTS = ("server", *CRITERIA, "mode")


class Target(Struct, frozen=True, kw_only=True):
    """What a job asks of its worker; an empty criterion is not given, and none at all fits every worker."""

    server: str = ""
    stack: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    region: tuple[str, ...] = ()
    mode: str = "all"


class Identity(Struct, frozen=True, kw_only=True):
    """What a worker is and can do."""

    server: str
    stack: frozenset[str] = frozenset()
    capabilities: frozenset[str] = frozenset()
    region: frozenset[str] = frozenset()


ANYONE = Target()


def fits(worker: Identity, target: Target) -> bool:
    """May this worker have a job with this target?

    A server, where one is given, decides alone. Else stack and region fit where the worker's is among
    the given ones; capabilities fit where the worker has all of them (mode `all`) or one of them
    (mode `any`); and the given criteria are joined by that same mode.

    >>> gpu = Target(capabilities=("gpu", "cuda"), region=("us-east",))
    >>> worker = Identity(server="w1", capabilities=frozenset({"gpu"}), region=frozenset({"us-east"}))
    >>> fits(worker, gpu)
    False
    """
    if target.server:
        return target.server == worker.server
    found = []
    if target.stack:
        found.append(not worker.stack.isdisjoint(target.stack))
    if target.capabilities:
        if target.mode == "all":
            found.append(worker.capabilities.issuperset(target.capabilities))
        else:
            found.append(not worker.capabilities.isdisjoint(target.capabilities))
    if target.region:
        found.append(not worker.region.isdisjoint(target.region))
    if not found:
        return True
    return all(found) if target.mode == "all" else any(found)


def read_target(value: Any) -> Target:
    """The target in a job's JSON; `InvalidOptions` where no rule can be read from it.

    Missing, null and empty parts are not given; a text counts as a list of one. Parts we do not know are
    left alone, for they are someone else's.

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
    """The target a producer asks for: as `read_target`, but parts we do not know are refused.

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
    """The target as it stands in a job's JSON; empty where it fits every worker."""
    if target.server:
        return {"server": target.server}
    given = {name: list(getattr(target, name)) for name in CRITERIA if getattr(target, name)}
    return {**given, "mode": target.mode} if given else {}


def check_identity(server: Any, stack: Any = (), capabilities: Any = (), region: Any = ()) -> Identity:
    """A worker's identity; each part is a text or a list of texts.

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
