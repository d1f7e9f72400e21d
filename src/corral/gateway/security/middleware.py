"""The middleware of every request: size, host, origin and key before it, security headers after it."""

import re
from inspect import isawaitable
from ipaddress import ip_address
from time import perf_counter
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from corral.errors import RedisError
from corral.gateway.connection import HEAD, STATE, connection_of
from corral.gateway.dashboard import FILES
from corral.gateway.problems import Problem, of_error
from corral.gateway.responses import Headers, with_security
from corral.gateway.routes.dependencies import keep_inner_slashes, route_path
from corral.gateway.security.auth import SCOPE_CLIENT, ApiClient, ApiKeys, FindUser, Role, roles_of
from corral.gateway.security.sessions import CSRF_HEADER, check_csrf, session_token
from corral.gateway.settings import GatewaySettings
from corral.gateway.state import GatewayState
from corral.telemetry.logs import logger

SESSION_PATH = "/v1/session"
OPEN_PATHS = frozenset({"/livez", "/readyz", "/openapi.json", SESSION_PATH, *FILES})
"""Paths that need no key."""
REFUSALS_LOGGED_S = 1.0
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_HOST = re.compile(rb"(?:\[([0-9A-Za-z:.%_-]+)\]|([0-9A-Za-z._~!$&'()*+,;=%-]*))(?::[0-9]{0,5})?")
"""RFC 3986: an address in brackets or a name, and a port; no user and password."""
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


class GatewayMiddleware:
    """Checks requests, authenticates their clients, counts the responses."""

    def __init__(
        self, app: ASGIApp, settings: GatewaySettings, keys: ApiKeys, find_user: FindUser | None = None
    ) -> None:
        self._app = app
        self._settings = settings
        self._keys = keys
        self._find_user = find_user
        self._hosts = LOOPBACK_NAMES | {host.lower() for host in settings.hosts}
        self._refused, self._logged_at = 0, -REFUSALS_LOGGED_S

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        began = perf_counter()
        connection = connection_of(scope)
        keep_inner_slashes(scope)
        # routed as GET; the server leaves out the body
        routed = {**scope, "method": "GET", HEAD: True} if scope["method"] == "HEAD" else scope

        async def send_with_headers(message: Message) -> None:
            is_early = False
            if message["type"] == "http.response.start":
                message["headers"] = with_security(message.get("headers", ()))
                _count(routed, message["status"], perf_counter() - began)
                is_early = connection is not None and connection.is_receiving(scope)
                if is_early:
                    message["headers"].append((b"connection", b"close"))
            await send(message)
            if is_early and connection is not None:
                connection.close_after_response()

        try:
            client = self._authenticate(scope) or await self._user_or_session(scope)
            self._check_changes(scope)
            routed[SCOPE_CLIENT] = client
        except Problem as problem:
            if problem.kind.status == 401:
                self._log_refusal(scope)
            await problem.response()(scope, receive, send_with_headers)
            return
        await self._app(routed, receive, send_with_headers)

    def _authenticate(self, scope: Scope) -> ApiClient | None:
        """Return the client of a request; None where only a session can tell."""
        headers: Headers = scope["headers"]
        host = origin = authorization = b""
        hosts = 0
        size = len(scope.get("raw_path") or b"") + len(scope["query_string"])
        for name, value in headers:
            size += len(name) + len(value)
            if name == b"host":
                host = value
                hosts += 1
            elif name == b"origin":
                origin = value
            elif name == b"authorization":
                authorization = value
        self._check_size(size, len(headers))
        host_name = _host_name(host, hosts)
        if origin and scope["method"] not in SAFE_METHODS:
            _check_origin(origin, host)
        if self._find_user is not None:
            return None
        forwarded = self._forwarded_client(scope)
        if forwarded is not None:
            return forwarded
        if self._keys:
            return self._client_of(authorization) if authorization else None
        # without keys the address alone restricts access, and a web page can resolve any name to it
        if host_name not in self._hosts:
            raise Problem(
                "misdirected",
                f"without keys the gateway accepts loopback host names only, not {host_name[:80]!r}; "
                f"set keys, or name the host in CORRAL_HOSTS",
            )
        address = scope.get("client")
        return ApiClient(address[0] if address else "local", frozenset(Role))

    def _log_refusal(self, scope: Scope) -> None:
        """Log requests without a valid key, at most one line a second; never what they sent."""
        self._refused += 1
        if perf_counter() - self._logged_at >= REFUSALS_LOGGED_S:
            address = (scope.get("client") or ("local",))[0]
            logger("gateway").warning("no valid key", requests=self._refused, last_address=address)
            self._refused, self._logged_at = 0, perf_counter()

    def _check_size(self, size: int, count: int) -> None:
        settings = self._settings
        if size > settings.max_header_bytes or count > settings.max_headers:
            raise Problem(
                "headers-too-large",
                f"{count} headers and the URL have {size} bytes; "
                f"send at most {settings.max_headers} and {settings.max_header_bytes}",
            )

    def _client_of(self, authorization: bytes) -> ApiClient:
        scheme, _, key = authorization.partition(b" ")
        client = self._keys.client_of(key.strip().decode("latin-1")) if scheme.lower() == b"bearer" else None
        if client is None:
            raise _unauthorized("this key is not known", ', error="invalid_token"')
        return client

    def _forwarded_client(self, scope: Scope) -> ApiClient | None:
        """Return the user that a trusted proxy names; changes need a header that no form can send."""
        user = _header(scope, b"x-forwarded-user")
        address = scope.get("client")
        if not user or not address or not self._settings.trusted_proxies:
            return None
        try:
            source = ip_address(address[0])
        except ValueError:
            return None
        if not any(source in network for network in self._settings.trusted_proxies):
            return None
        _require_csrf_header(scope)
        name = user.decode("utf-8", "replace")[:64]
        return ApiClient(name, roles_of(map(Role, self._settings.forwarded_roles)))

    async def _user_or_session(self, scope: Scope) -> ApiClient:
        if self._find_user is None:
            return await self._session_client(scope)
        found = self._find_user(Request(scope))
        client = await found if isawaitable(found) else found
        if client is not None:
            _require_csrf_header(scope)
            return ApiClient(client.name, roles_of(client.roles))
        if route_path(scope) in OPEN_PATHS:
            return ApiClient("", frozenset())
        raise _unauthorized("sign in to the app that this gateway is part of")

    async def _session_client(self, scope: Scope) -> ApiClient:
        """Return the client that signed in; a change must have the session's CSRF token."""
        token = session_token(_header(scope, b"cookie"))
        state: GatewayState | None = scope.get("state", {}).get(STATE)
        client = None
        if token is not None and state is not None:
            try:
                client = await state.call(state.sessions.client_of(token))
            except RedisError as error:
                raise of_error(error) from None
        if client is not None and token is not None:
            if scope["method"] not in SAFE_METHODS:
                check_csrf(token, _header(scope, CSRF_HEADER))
            return client
        if route_path(scope) in OPEN_PATHS:
            return ApiClient("", frozenset())
        raise _unauthorized("send a key: Authorization: Bearer …, or sign in: POST /v1/session")

    def _check_changes(self, scope: Scope) -> None:
        is_change = scope["method"] not in SAFE_METHODS
        if is_change and self._settings.read_only and route_path(scope) != SESSION_PATH:
            raise Problem("read-only", "this gateway is read-only; use one without CORRAL_READ_ONLY")


def _header(scope: Scope, wanted: bytes) -> bytes:
    values: list[bytes] = [value for name, value in scope["headers"] if name == wanted]
    return values[0] if values else b""


def _require_csrf_header(scope: Scope) -> None:
    """Refuse a change without a header that no form of another site can send."""
    if scope["method"] not in SAFE_METHODS and not _header(scope, CSRF_HEADER):
        raise Problem("csrf", "send the header X-CSRF-Token with every change, with any value")


def _unauthorized(detail: str, error: str = "") -> Problem:
    challenge = f'Bearer realm="corral"{error}'
    return Problem("unauthorized", detail, headers={"WWW-Authenticate": challenge})


def _count(scope: Scope, status: int, seconds: float) -> None:
    state: GatewayState | None = scope.get("state", {}).get(STATE)
    if state is not None:
        route = scope.get("route")
        # unknown paths share one label, so that requests cannot add labels without end
        method, path = (scope["method"], route.path) if isinstance(route, Route) else ("other", "other")
        state.metrics.count_response(method, path, status, seconds)


def _check_origin(origin: bytes, host: bytes) -> None:
    try:
        is_own = urlsplit(origin.decode("latin-1")).netloc.lower() == host.decode("latin-1").lower()
    except ValueError:
        is_own = False
    if not is_own:
        raise Problem("cross-origin", "this was sent by a page of another origin; send it from a server")


def _host_name(host: bytes, count: int) -> str:
    """Return the name in the Host header, without port and brackets."""
    match = _HOST.fullmatch(host)
    if match is None or count > 1:
        raise Problem(
            "malformed-request", "send one Host header, a name or an address with or without a port"
        )
    return (match[1] or match[2]).decode().lower()
