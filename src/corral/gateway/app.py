"""The gateway's app: settings in, an ASGI application out."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI

from corral.gateway import (
    describe,
    feed,
    health,
    jobs,
    operating,
    page,
    problems,
    queues,
    scheduling,
    tailing,
)
from corral.gateway.callers import KeyRing
from corral.gateway.guard import Guard
from corral.gateway.hall import Hall
from corral.gateway.settings import Settings

DESCRIPTION = """Ask for jobs, watch them live, and operate every queue.

Every error is `application/problem+json` (RFC 9457) with a `type` that does not change."""


class Gateway(FastAPI):
    """FastAPI, with a description that says what is really answered."""

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document."""
        if self.openapi_schema is None:
            self.openapi_schema = describe.finish(super().openapi())
        return self.openapi_schema


def create_app(settings: Settings | None = None) -> FastAPI:
    """The gateway as an ASGI application; without settings, as the environment says.

    >>> from corral.gateway import Settings, create_app
    >>> create_app(Settings(redis_url="redis://127.0.0.1:6379")).title
    'Corral gateway'
    """
    chosen = settings or Settings()
    ring = KeyRing.load(chosen)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
        hall = Hall(chosen)
        await hall.open()
        try:
            yield {"hall": hall}
        finally:
            await hall.close()

    app = Gateway(
        title="Corral gateway",
        version="1",
        description=DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    problems.install(app)
    for part in (jobs, tailing, queues, scheduling, operating, feed, health, page):
        app.include_router(part.router)
    app.add_middleware(Guard, settings=chosen, ring=ring)
    # describing the routes makes them ready; else the first request would do that, and its client wait
    app.openapi()
    return app
