"""`corral demo --keep`: a gateway with its dashboard, workers in every protocol, and a stream of jobs."""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from corral.app import Corral
from corral.cli.demo.http import gateway
from corral.cli.demo.steps import DemoOutput
from corral.errors import Transient

PAUSE_S = 0.1
"""Between two jobs of each protocol."""


async def keep(url: str, demo: DemoOutput) -> None:
    """Run until a signal comes."""
    async with Corral(url) as app:
        produce = _register(app)
        with gateway(url) as port:
            _print_addresses(demo, url, f"http://127.0.0.1:{port}")
            producing = asyncio.create_task(produce())
            try:
                await app.run(concurrency=10, grace=1.0)
            finally:
                producing.cancel()
    demo.line("stopped; the server and its data are gone")


def _print_addresses(demo: DemoOutput, url: str, address: str) -> None:
    dashboard, queues = f"{address}/", f"{address}/v1/queues"
    demo.document({"server": url, "dashboard": dashboard, "queues": queues})
    demo.line(f"server      {url}")
    demo.line(f"dashboard   {dashboard}")
    demo.line(f"queues      {queues}")
    demo.line(f"live        corral --url {url} top")
    demo.line("It runs until Ctrl-C.")


def _register(app: Corral) -> Callable[[], Coroutine[Any, Any, None]]:
    """Register the handlers; return the coroutine function that adds jobs for ever."""
    random = Random(2)

    @app.job("send-email", queue="mail", backoff={"type": "fixed", "delay": 500})
    async def send_email(job: Any) -> None:
        await asyncio.sleep(random.uniform(0.01, 0.1))
        if random.random() < 0.1:
            raise Transient("451 greylisted, try again later")

    @app.job("embed", protocol="streams")
    async def embed(job: Any) -> dict[str, int]:
        await job.emit("embed.words", {"count": len(job.data["text"].split())})
        await asyncio.sleep(random.uniform(0.01, 0.1))
        return {"vectors": 1}

    @app.job("transcode", queue="films", protocol="bridgemq")
    async def transcode(job: Any) -> None:
        await asyncio.sleep(random.uniform(0.01, 0.2))

    async def produce() -> None:
        number = 0
        while True:
            number += 1
            delay = 1000 if number % 5 == 0 else 0
            await send_email.options(priority=number % 3, delay=delay).add({"number": number})
            await embed.add({"text": f"text number {number} of the herd"})
            await transcode.add({"film": number})
            await asyncio.sleep(PAUSE_S)

    return produce
