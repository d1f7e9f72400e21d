"""`manage.py corral_worker`: work on the jobs of this project."""

import asyncio
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from corral.contrib.django import app
from corral.telemetry import logs
from corral.worker.config import DEFAULT_CONCURRENCY


class Command(BaseCommand):
    """The command."""

    help = "Work on the jobs of this project until a signal comes."

    def add_arguments(self, parser: CommandParser) -> None:
        concurrency = {"type": int, "default": DEFAULT_CONCURRENCY, "help": "jobs at a time"}
        parser.add_argument("-c", "--concurrency", **concurrency)
        parser.add_argument("-q", "--queue", action="append", dest="queues", help="serve this queue only")
        parser.add_argument("--burst", action="store_true", help="end when no job is waiting or running")

    def handle(self, *args: Any, concurrency: int, queues: list[str] | None, burst: bool, **_: Any) -> None:
        logs.configure()

        async def run() -> None:
            async with app:
                await app.run(concurrency=concurrency, queues=queues, burst=burst)

        asyncio.run(run())
