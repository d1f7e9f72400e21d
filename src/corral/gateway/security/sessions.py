"""Sessions: sign-in with an API key, kept in Redis under a cookie that scripts cannot read."""

import hmac
from hashlib import sha256
from http.cookies import CookieError, SimpleCookie
from secrets import token_urlsafe

import orjson

from corral.app import Corral
from corral.gateway.problems import Problem
from corral.gateway.security.auth import ApiClient, ApiKeys

COOKIE = "corral_session"
CSRF_HEADER = b"x-csrf-token"
_PREFIX = "corral:session:"


class Sessions:
    """The sessions of all processes of a gateway; Redis knows only the digests of their tokens."""

    def __init__(self, corral: Corral, keys: ApiKeys, seconds: int) -> None:
        self._corral = corral
        self._keys = keys
        self.seconds = seconds

    async def start(self, client: ApiClient) -> str:
        """Return the token of a new session."""
        token = token_urlsafe(32)
        document = orjson.dumps({"name": client.name, "key": self._keys.fingerprint(client)})
        await self._corral.store().call("SET", _key(token), document, "EX", self.seconds)
        return token

    async def end(self, token: str) -> None:
        """Delete a session."""
        await self._corral.store().call("DEL", _key(token))

    async def client_of(self, token: str) -> ApiClient | None:
        """Return the client of a session; None where it has ended or its key is no longer valid."""
        raw = await self._corral.store().call("GET", _key(token))
        if raw is None:
            return None
        document = orjson.loads(raw)
        return self._keys.client_named(document["name"], document["key"])


def csrf_token(token: str) -> str:
    """Return the token that changes in a session must send as `X-CSRF-Token`."""
    return hmac.new(token.encode(), b"csrf", sha256).hexdigest()


def check_csrf(token: str, sent: bytes) -> None:
    """Refuse a change whose CSRF token is not the session's."""
    if not hmac.compare_digest(csrf_token(token).encode(), sent):
        raise Problem("csrf", "send the session's token as X-CSRF-Token; GET /v1/session returns it")


def session_token(cookie: bytes) -> str | None:
    """Return the token in a Cookie header.

    >>> session_token(b"a=1; corral_session=abc")
    'abc'
    """
    try:
        morsel = SimpleCookie(cookie.decode("latin-1")).get(COOKIE)
    except CookieError:
        return None
    return morsel.value if morsel is not None and 0 < len(morsel.value) <= 128 else None


def cookie_header(token: str, path: str, seconds: int, is_secure: bool) -> str:
    """Return the Set-Cookie header of a session; with no seconds it deletes the cookie."""
    secure = "; Secure" if is_secure else ""
    return f"{COOKIE}={token}; Path={path}; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"


def _key(token: str) -> str:
    return _PREFIX + sha256(token.encode()).hexdigest()
