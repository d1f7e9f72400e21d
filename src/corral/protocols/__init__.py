"""The registry of protocols."""

import os
from importlib import import_module
from typing import TYPE_CHECKING

from corral.errors import InvalidName, InvalidOptions, UnknownProtocol

if TYPE_CHECKING:
    from corral.core.options import Capability
    from corral.protocols.base import Protocol

MODULES = {name: f"{__name__}.{name}" for name in ("bullmq", "streams", "bridgemq")}
"""The module of each protocol, imported when it is first used; the first is the default."""
DEFAULT_PROTOCOL = next(iter(MODULES))


def protocol_names() -> list[str]:
    """Return the names of all protocols."""
    return list(MODULES)


def protocol_named(name: str) -> "Protocol":
    """Return the protocol of that name.

    >>> protocol_named("bullmq").spec.default_namespace
    'bull'
    """
    if name not in MODULES:
        raise UnknownProtocol(f"there is no protocol {name!r}; use one of {', '.join(MODULES)}")
    protocol: Protocol = import_module(MODULES[name]).PROTOCOL
    return protocol


def all_protocols() -> "list[Protocol]":
    """Return every protocol; the first is the default."""
    return [protocol_named(name) for name in MODULES]


def names_with(capability: "Capability") -> list[str]:
    """Return the names of the protocols that have a capability."""
    return [protocol.spec.name for protocol in all_protocols() if capability in protocol.spec.capabilities]


def names_with_http() -> list[str]:
    """Return the names of the protocols that have an HTTP contract of their own."""
    return [protocol.spec.name for protocol in all_protocols() if protocol.spec.has_http]


def option_help(option: str) -> str:
    """Return the help text of an option that only some protocols know.

    >>> option_help("idempotency_key")
    'The same key gives the same job (protocol streams).'
    """
    specs = [protocol.spec for protocol in all_protocols() if option in protocol.spec.options]
    return f"{specs[0].options[option]} (protocol {', '.join(spec.name for spec in specs)})."


def priority_help() -> str:
    """Return which priorities run first, in each protocol that has them."""
    specs = [protocol.spec for protocol in all_protocols() if protocol.spec.priority]
    return " ".join(f"{spec.name}: {spec.priority}." for spec in specs)


def given_generation(protocol: str, given: int | None) -> int | None:
    """Return the generation of a protocol that was given, or that its variable names; None where none is.

    >>> given_generation("bullmq", 7)
    Traceback (most recent call last):
    corral.errors.InvalidOptions: bullmq is 7; use 5 or 6, or leave it out
    """
    value = given if given is not None else os.environ.get(f"CORRAL_{protocol.upper()}") or None
    if value is None:
        return None
    known = [str(generation) for generation in protocol_named(protocol).spec.generations]
    if str(value) not in known:
        raise InvalidOptions(f"{protocol} is {value!r}; use {' or '.join(known)}, or leave it out")
    return int(value)


def given_generations(**given: int | None) -> dict[str, int | None]:
    """Return the generation of each of these protocols, as `given_generation` does."""
    return {protocol: given_generation(protocol, generation) for protocol, generation in given.items()}


def in_one_slot(protocol: "Protocol", namespace: str, queue: str) -> str:
    """Return what a queue is called in a cluster, where all of its keys must share a slot.

    >>> bullmq = protocol_named("bullmq")
    >>> in_one_slot(bullmq, "bull", "mail"), in_one_slot(bullmq, "{shop}", "mail")
    ('{mail}', 'mail')
    """
    from corral.store.cluster import has_tag

    spec = protocol.spec
    if has_tag(namespace) or (spec.tags_queues and has_tag(queue)):
        return queue
    if spec.tags_queues:
        return f"{{{queue}}}"
    raise InvalidName(
        f"protocol {spec.name!r} keeps all its keys in one slot of a cluster; namespace {namespace!r} "
        f"has no hash tag to choose it; give one that has, as in namespaces={{{spec.name!r}: '{{shop}}'}}"
    )
