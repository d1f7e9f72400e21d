"""The guard at the gate: limits, origins and keys before a request is looked at, safe headers after it."""

from collections.abc import Sequence
from time import perf_counter
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from corral.gateway.callers import Caller, KeyRing, anyone
from corral.gateway.page import FILES
from corral.gateway.paths import keep_inner_slashes
from corral.gateway.problems import Problem
from corral.gateway.settings import Settings

OPEN_PATHS = frozenset({"/livez", "/readyz", "/openapi.json", *FILES})
"""What probes and readers of the interface may ask without a key, and the page that asks for one."""
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
CALLER = "corral.caller"
"""Where an ASGI scope has who calls."""

SECURITY_HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)

Headers = Sequence[tuple[bytes, bytes]]


class Guard:
    """Stands before the whole app."""

    def __init__(self, app: ASGIApp, settings: Settings, ring: KeyRing) -> None:
        self._app = app
        self._settings = settings
        self._ring = ring
        self._hosts = LOOPBACK_NAMES | {host.lower() for host in settings.hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        began = perf_counter()
        keep_inner_slashes(scope)

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = with_security(message.get("headers", ()))
                _count(scope, message["status"], perf_counter() - began)
            await send(message)

        try:
            scope[CALLER] = self._let_in(scope)
        except Problem as problem:
            await problem.response()(scope, receive, send_safely)
            return
        await self._app(scope, receive, send_safely)

    def _let_in(self, scope: Scope) -> Caller:
        headers: Headers = scope["headers"]
        host = origin = bearer = b""
        size = len(scope.get("raw_path") or b"") + len(scope["query_string"])
        for name, value in headers:
            size += len(name) + len(value)
            if name == b"host":
                host = value
            elif name == b"origin":
                origin = value
            elif name == b"authorization":
                bearer = value
        self._check_size(size, len(headers))
        if origin and scope["method"] not in SAFE_METHODS:
            _check_origin(origin, host)
        if self._ring:
            return self._known(bearer, scope["path"])
        # without keys only the address keeps strangers out, and a page on the web can make up any name for it
        named = _host_name(host)
        if named not in self._hosts:
            raise Problem(
                "misdirected",
                f"without keys the gateway answers to loopback names only, not to {named[:80]!r}; "
                f"set keys, or name the host in CORRAL_HOSTS",
            )
        client = scope.get("client")
        return anyone(client[0] if client else "local")

    def _check_size(self, size: int, count: int) -> None:
        settings = self._settings
        if size > settings.max_header_bytes or count > settings.max_headers:
            raise Problem(
                "headers-too-large",
                f"{count} headers and the address have {size} bytes; "
                f"send at most {settings.max_headers} and {settings.max_header_bytes}",
            )

    def _known(self, authorization: bytes, path: str) -> Caller:
        scheme, _, key = authorization.partition(b" ")
        caller = self._ring.find(key.strip().decode("latin-1")) if scheme.lower() == b"bearer" else None
        if caller is not None:
            return caller
        if path in OPEN_PATHS:
            return Caller("", frozenset())
        told = 'Bearer realm="corral", error="invalid_token"' if authorization else 'Bearer realm="corral"'
        detail = "this key is not known" if authorization else "send a key: Authorization: Bearer …"
        raise Problem("unauthorized", detail, headers={"WWW-Authenticate": told})


def _count(scope: Scope, status: int, seconds: float) -> None:
    hall = scope.get("state", {}).get("hall")
    if hall is not None:
        # paths that lead nowhere are one: whoever tries many must not fill the registry
        route = getattr(scope.get("route"), "path", "other")
        hall.metrics.answered(scope["method"] if route != "other" else "other", route, status, seconds)


def with_security(headers: Headers) -> list[tuple[bytes, bytes]]:
    """The headers of an answer and, where it has none of its own, the safe ones."""
    present = {name for name, _ in headers}
    return [*headers, *(header for header in SECURITY_HEADERS if header[0] not in present)]


def _check_origin(origin: bytes, host: bytes) -> None:
    if urlsplit(origin.decode("latin-1")).netloc.lower() != host.decode("latin-1").lower():
        raise Problem("cross-origin", "this came from a page of another origin; send it from a server")


def _host_name(host: bytes) -> str:
    """The name in a Host header, without port and brackets."""
    text = host.decode("latin-1").lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0]
