"""Who calls, and what they may do: bearer keys and their roles."""

import hmac
import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson

from corral.errors import InvalidOptions
from corral.gateway.settings import Settings

SHORTEST_KEY = 16

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_SHAPE = 'write [{"name": "shop", "key": "…", "roles": ["submit", "read"]}]'


class Role(StrEnum):
    """What a key allows."""

    SUBMIT = "submit"
    """Ask for jobs, and cancel them."""
    READ = "read"
    """Look at jobs and queues."""
    OPERATE = "operate"
    """Look at everything, and change queues."""
    ADMIN = "admin"
    """Everything, also what cannot be undone."""


_INCLUDED: dict[Role, frozenset[Role]] = {
    Role.SUBMIT: frozenset({Role.SUBMIT}),
    Role.READ: frozenset({Role.READ}),
    Role.OPERATE: frozenset({Role.OPERATE, Role.READ}),
    Role.ADMIN: frozenset(Role),
}


@dataclass(frozen=True)
class Caller:
    """One client: its name, and its roles with all that they include."""

    name: str
    roles: frozenset[Role]

    @property
    def sees_all(self) -> bool:
        """Does it see the jobs of others, where clients own theirs?"""
        return Role.OPERATE in self.roles


def anyone(address: str) -> Caller:
    """A caller where there are no keys: known by its address, and free to do everything."""
    return Caller(address, frozenset(Role))


class KeyRing:
    """The keys a gateway knows; only their digests are kept.

    >>> ring = KeyRing.of([{"name": "shop", "key": "a-secret-of-the-shop", "roles": ["submit"]}])
    >>> ring.find("a-secret-of-the-shop").name, ring.find("a guess")
    ('shop', None)
    """

    def __init__(self, keys: Iterable[tuple[bytes, Caller]]) -> None:
        self._keys = tuple(keys)

    def __bool__(self) -> bool:
        return bool(self._keys)

    def find(self, key: str) -> Caller | None:
        """Whose key this is; every key is compared to its end, so that time tells nothing."""
        digest = sha256(key.encode("utf-8", "surrogatepass")).digest()
        found = None
        for known, caller in self._keys:
            if hmac.compare_digest(known, digest):
                found = caller
        return found

    @staticmethod
    def load(settings: Settings) -> "KeyRing":
        """The keys of the environment and of the file together."""
        rows: list[Any] = []
        if settings.keys is not None and settings.keys.get_secret_value().strip():
            rows += _parse("CORRAL_KEYS", settings.keys.get_secret_value())
        if settings.keys_file is not None:
            rows += _read(settings.keys_file)
        ring = KeyRing.of(rows)
        if settings.ownership and not ring:
            raise InvalidOptions("ownership needs keys, or nobody is known by a name; set CORRAL_KEYS_FILE")
        return ring

    @staticmethod
    def of(rows: Sequence[Any]) -> "KeyRing":
        """A ring of rows as the environment or a file has them; no message ever shows a key."""
        keys = [_key(row, position) for position, row in enumerate(rows)]
        names = [caller.name for _, caller in keys]
        if len(set(names)) < len(names) or len({digest for digest, _ in keys}) < len(keys):
            raise InvalidOptions("two keys have the same name or the same value; give each its own")
        return KeyRing(keys)


def _read(path: Path) -> list[Any]:
    try:
        text = path.read_text()
    except OSError as error:
        raise InvalidOptions(f"keys file {str(path)!r} cannot be read: {error.strerror}") from None
    if path.suffix != ".toml":
        return _parse(str(path), text)
    try:
        rows = tomllib.loads(text).get("keys")
    except tomllib.TOMLDecodeError as error:
        raise InvalidOptions(f"keys file {str(path)!r} is no TOML: {error}") from None
    if not isinstance(rows, list):
        raise InvalidOptions(f"keys file {str(path)!r} has no [[keys]]; give each key one")
    return rows


def _parse(where: str, text: str) -> list[Any]:
    try:
        rows = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        # the text itself is secret, so only the place is named
        raise InvalidOptions(
            f"{where} is no JSON (line {error.lineno}, column {error.colno}); {_SHAPE}"
        ) from None
    if not isinstance(rows, list):
        raise InvalidOptions(f"{where} is a {type(rows).__name__}; {_SHAPE}")
    return rows


def _key(row: Any, position: int) -> tuple[bytes, Caller]:
    if not isinstance(row, dict) or row.keys() - {"name", "key", "sha256", "roles"}:
        raise InvalidOptions(f"key number {position} is not of the right shape; {_SHAPE}")
    name = row.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidOptions(
            f"key number {position} has the name {name!a}; use 1 to 64 letters, digits, '-', '_', '.'"
        )
    try:
        roles = frozenset().union(*(_INCLUDED[Role(role)] for role in row.get("roles") or ()))
    except (ValueError, TypeError):
        roles = frozenset()
    if not roles:
        raise InvalidOptions(f"key {name!r} has no roles that are known; use {', '.join(Role)}")
    return _digest(name, row), Caller(name, roles)


def _digest(name: str, row: dict[str, Any]) -> bytes:
    key, digest = row.get("key"), row.get("sha256")
    if isinstance(digest, str) and key is None and _DIGEST.fullmatch(digest):
        return bytes.fromhex(digest)
    if isinstance(key, str) and digest is None and len(key) >= SHORTEST_KEY and re.fullmatch(r"[!-~]+", key):
        return sha256(key.encode()).digest()
    raise InvalidOptions(
        f"key {name!r} needs either 'key', at least {SHORTEST_KEY} visible ASCII characters, "
        f"or 'sha256', its digest in 64 hex digits"
    )
