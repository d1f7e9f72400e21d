"""FastAPI: one line opens a Corral with your app, one line mounts its gateway and dashboard in it."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from fastapi import FastAPI

from corral.app import Corral
from corral.gateway import GatewaySettings, create_app
from corral.gateway.security.auth import ApiClient, FindUser, Role

__all__ = ["ApiClient", "Role", "mount", "use"]


def use(api: FastAPI, app: Corral) -> None:
    """Let routes add jobs: the app's connections are closed when the server stops.

    >>> api, app = FastAPI(), Corral()
    >>> use(api, app)
    """

    @asynccontextmanager
    async def opened(_: FastAPI) -> AsyncIterator[dict[str, Any]]:
        async with app:
            yield {}

    _add_lifespan(api, opened)


def mount(
    api: FastAPI,
    app: Corral,
    path: str = "/jobs",
    *,
    find_user: FindUser | None = None,
    settings: GatewaySettings | None = None,
) -> None:
    """Mount the gateway and its dashboard under a path of your own app.

    `find_user(request)`, plain or async, returns who sends a request and with which roles, or None: your own
    sign-in then guards the dashboard. Without it the gateway's keys do, as in `corral gateway`.

    >>> def find_user(request):
    ...     return ApiClient("ada", frozenset({Role.ADMIN})) if "ada" in request.cookies else None
    >>> mount(FastAPI(), Corral("redis://localhost:6379"), "/jobs", find_user=find_user)
    """
    gateway = create_app(settings or GatewaySettings(redis_url=app.url), app, find_user)
    _add_lifespan(api, lambda _: gateway.router.lifespan_context(gateway))
    api.mount(path, gateway)


def _add_lifespan(api: FastAPI, inner: Callable[[FastAPI], AbstractAsyncContextManager[Any]]) -> None:
    outer = api.router.lifespan_context

    @asynccontextmanager
    async def both(started: FastAPI) -> AsyncIterator[dict[str, Any]]:
        async with outer(started) as state, inner(started) as more:
            yield {**(state or {}), **(more or {})}

    api.router.lifespan_context = both
