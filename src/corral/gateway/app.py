"""The gateway as an ASGI application."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI

from corral.app import Corral
from corral.app_loader import load_app
from corral.gateway import dashboard, openapi, problems
from corral.gateway.connection import STATE
from corral.gateway.routes import (
    activity,
    changes,
    events,
    health,
    history,
    jobs,
    queues,
    schedules,
    server,
    session,
    tasks,
)
from corral.gateway.security.auth import ApiKeys, FindUser
from corral.gateway.security.middleware import GatewayMiddleware
from corral.gateway.settings import GatewaySettings
from corral.gateway.state import GatewayState

DESCRIPTION = """Create jobs, follow them live, and operate the queues of every protocol.

Every error is `application/problem+json` (RFC 9457) with a stable `type`."""


class GatewayApp(FastAPI):
    """FastAPI with a completed OpenAPI document."""

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document."""
        if self.openapi_schema is None:
            self.openapi_schema = openapi.complete(super().openapi())
        return self.openapi_schema


def create_app(
    settings: GatewaySettings | None = None,
    corral: Corral | None = None,
    find_user: FindUser | None = None,
) -> FastAPI:
    """Return the gateway as an ASGI application; without settings, with those of the environment.

    Jobs for which `corral` (else the app that the settings name) has a handler get its options, and their
    data must fit it. With `find_user`, that function alone decides who may do what, instead of keys.

    >>> from corral.gateway import GatewaySettings, create_app
    >>> create_app(GatewaySettings(redis_url="redis://127.0.0.1:6379")).title
    'Corral gateway'
    """
    settings = settings or GatewaySettings()
    keys = ApiKeys.load(settings)
    if corral is None and settings.app is not None:
        corral = load_app(settings.app)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
        state = GatewayState(settings, keys, corral)
        state.start()
        try:
            yield {STATE: state}
        finally:
            await state.close()

    app = GatewayApp(
        title="Corral gateway",
        version="1",
        description=DESCRIPTION,
        lifespan=lifespan,
        generate_unique_id_function=openapi.operation_id,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    problems.install(app)
    for part in (
        *(
            jobs,
            events,
            activity,
            changes,
            tasks,
            queues,
            schedules,
            history,
            server,
            session,
            health,
            dashboard,
        ),
    ):
        app.include_router(part.router)
    app.add_middleware(GatewayMiddleware, settings=settings, keys=keys, find_user=find_user)
    # this prepares the routes; otherwise the first request would, and its client wait
    app.openapi()
    return app
