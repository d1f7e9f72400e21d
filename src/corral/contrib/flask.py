"""Flask: handlers run in an application context, and `flask corral-worker` runs them."""

import asyncio
from typing import Any

import click
from flask import Flask, current_app

from corral.app import Corral
from corral.telemetry import logs
from corral.worker.config import DEFAULT_CONCURRENCY
from corral.worker.context import BaseJobContext
from corral.worker.middleware import CallNext

EXTENSION = "corral"


def init_app(flask: Flask, app: Corral) -> None:
    """Bind a Corral app to a Flask app; views add jobs by `app.sync(…)`.

    Every attempt runs inside `flask.app_context()`, so handlers have `current_app` and what hangs on it.

    >>> flask, app = Flask("shop"), Corral()
    >>> init_app(flask, app)
    >>> flask.extensions["corral"] is app
    True
    """
    flask.extensions[EXTENSION] = app
    flask.cli.add_command(work)

    @app.middleware
    async def in_app_context(job: BaseJobContext[Any], call_next: CallNext) -> Any:
        with flask.app_context():
            return await call_next(job)


@click.command("corral-worker")
@click.option("-c", "--concurrency", default=DEFAULT_CONCURRENCY, show_default=True, help="Jobs at a time.")
@click.option("-q", "--queue", "queues", multiple=True, help="Serve this queue only; repeatable.")
@click.option("--burst", is_flag=True, help="End when no job is waiting or running.")
def work(concurrency: int, queues: tuple[str, ...], burst: bool) -> None:
    """Work on the jobs of this application until a signal comes."""
    app: Corral = current_app.extensions[EXTENSION]
    logs.configure()

    async def run() -> None:
        async with app:
            await app.run(concurrency=concurrency, queues=queues or None, burst=burst)

    asyncio.run(run())
