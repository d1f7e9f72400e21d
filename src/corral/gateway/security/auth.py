"""API keys and the roles they have."""

import hmac
import re
import tomllib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson
from starlette.requests import Request

from corral.errors import InvalidOptions
from corral.gateway.settings import GatewaySettings

SHORTEST_KEY = 16
SCOPE_CLIENT = "corral.client"
"""The key of an ASGI scope under which the authenticated client is kept."""

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_SHAPE = 'write [{"name": "shop", "key": "…", "roles": ["submit", "read"]}]'


class Role(StrEnum):
    """What a key allows."""

    SUBMIT = "submit"
    """Create jobs, and cancel them."""
    READ = "read"
    """Read jobs, queues, events and metrics."""
    OPERATE = "operate"
    """Read everything, and change queues in ways that can be undone."""
    ADMIN = "admin"
    """Everything; also drain, clean and remove, which delete jobs."""


_INCLUDED: dict[Role, frozenset[Role]] = {Role.OPERATE: frozenset({Role.READ}), Role.ADMIN: frozenset(Role)}


@dataclass(frozen=True)
class ApiClient:
    """The client of a request: its key's name, and its roles with those they include."""

    name: str
    roles: frozenset[Role]


FindUser = Callable[[Request], Awaitable[ApiClient | None] | ApiClient | None]
"""Returns who sends a request, for a gateway inside an app that knows its users; None: nobody it knows."""


class ApiKeys:
    """The keys a gateway accepts; only their digests are kept.

    >>> keys = ApiKeys.parse([{"name": "shop", "key": "a-secret-of-the-shop", "roles": ["submit"]}])
    >>> keys.client_of("a-secret-of-the-shop").name, keys.client_of("a guess")
    ('shop', None)
    """

    def __init__(self, keys: Iterable[tuple[bytes, ApiClient]]) -> None:
        self._keys = tuple(keys)

    def __bool__(self) -> bool:
        return bool(self._keys)

    def client_of(self, key: str) -> ApiClient | None:
        """Return the client of this key; all keys are compared in full, so the time reveals nothing."""
        digest = sha256(key.encode("utf-8", "surrogatepass")).digest()
        match = None
        for key_digest, client in self._keys:
            if hmac.compare_digest(key_digest, digest):
                match = client
        return match

    def fingerprint(self, client: ApiClient) -> str:
        """Return what tells a client's key from another key of the same name; nothing of the key itself."""
        [digest] = [digest for digest, known in self._keys if known.name == client.name]
        return sha256(b"fingerprint" + digest).hexdigest()

    def client_named(self, name: str, fingerprint: str) -> ApiClient | None:
        """Return the client of that name while its key is the one with this fingerprint."""
        for _, client in self._keys:
            if client.name == name and hmac.compare_digest(self.fingerprint(client), fingerprint):
                return client
        return None

    @staticmethod
    def load(settings: GatewaySettings) -> "ApiKeys":
        """Return the keys of the environment and of the file together."""
        rows: list[Any] = []
        if settings.keys is not None and settings.keys.get_secret_value().strip():
            rows += _parse_json("CORRAL_KEYS", settings.keys.get_secret_value())
        if settings.keys_file is not None:
            rows += _read_file(settings.keys_file)
        keys = ApiKeys.parse(rows)
        if settings.ownership and not keys:
            raise InvalidOptions("ownership needs keys, which name the clients; set CORRAL_KEYS_FILE")
        return keys

    @staticmethod
    def parse(rows: Sequence[Any]) -> "ApiKeys":
        """Return the keys of these rows; no error message shows a key."""
        keys = [_parse_row(row, position) for position, row in enumerate(rows)]
        names = [client.name for _, client in keys]
        if len(set(names)) < len(names) or len({digest for digest, _ in keys}) < len(keys):
            raise InvalidOptions("two keys have the same name or the same value; give each its own")
        return ApiKeys(keys)


def _read_file(path: Path) -> list[Any]:
    try:
        text = path.read_text()
    except OSError as error:
        raise InvalidOptions(f"keys file {str(path)!r} cannot be read: {error.strerror}") from None
    if path.suffix != ".toml":
        return _parse_json(str(path), text)
    try:
        rows = tomllib.loads(text).get("keys")
    except tomllib.TOMLDecodeError as error:
        raise InvalidOptions(f"keys file {str(path)!r} is not TOML: {error}") from None
    if not isinstance(rows, list):
        raise InvalidOptions(f"keys file {str(path)!r} has no [[keys]]; give each key one")
    return rows


def _parse_json(name: str, text: str) -> list[Any]:
    try:
        rows = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        # the text itself is secret: only the position is shown
        raise InvalidOptions(
            f"{name} is not JSON (line {error.lineno}, column {error.colno}); {_SHAPE}"
        ) from None
    if not isinstance(rows, list):
        raise InvalidOptions(f"{name} is a {type(rows).__name__}; {_SHAPE}")
    return rows


def _parse_row(row: Any, position: int) -> tuple[bytes, ApiClient]:
    if not isinstance(row, dict) or row.keys() - {"name", "key", "sha256", "roles"}:
        raise InvalidOptions(f"key number {position} has the wrong shape; {_SHAPE}")
    name = row.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidOptions(
            f"key number {position} has the name {name!a}; use 1 to 64 letters, digits, '-', '_', '.'"
        )
    try:
        roles = frozenset(Role(role) for role in row.get("roles") or ())
    except (ValueError, TypeError):
        roles = frozenset()
    if not roles:
        raise InvalidOptions(f"key {name!r} has no known role; use {', '.join(Role)}")
    return _digest(name, row), ApiClient(name, roles_of(roles))


def roles_of(roles: Iterable[Role]) -> frozenset[Role]:
    """Return these roles with those that they include."""
    named = frozenset(roles)
    return named.union(*(_INCLUDED.get(role, frozenset()) for role in named))


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
