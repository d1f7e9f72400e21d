"""What `--keep` leaves running: a gateway with its page, workers in every protocol, jobs that keep coming."""

import asyncio
from random import Random
from typing import Any

from corral.app import Corral
from corral.cli.demo.serving import gateway
from corral.cli.demo.stage import Stage
from corral.errors import Transient

PAUSE_S = 0.1
"""Between two jobs of each protocol: enough to look at, little enough to leave alone."""


async def keep(url: str, stage: Stage) -> None:
    """Return at a signal."""
    async with Corral(url) as app:
        produce = _install(app)
        with gateway(url) as port:
            _say_where(stage, url, f"http://127.0.0.1:{port}")
            producing = asyncio.create_task(produce())
            try:
                await app.run(concurrency=10, grace=1.0)
            finally:
                producing.cancel()
    stage.say("stopped; the server and its data are gone")


def _say_where(stage: Stage, url: str, address: str) -> None:
    if stage.screen.as_json:
        stage.screen.document({"server": url, "dashboard": f"{address}/", "queues": f"{address}/v1/queues"})
        return
    stage.say(f"server      {url}")
    stage.say(f"dashboard   {address}/")
    stage.say(f"queues      {address}/v1/queues")
    stage.say(f"live        corral --url {url} top")
    stage.say("It runs until Ctrl-C.")


def _install(app: Corral) -> Any:
    chance = Random(2)

    @app.job("send-email", queue="mail", backoff={"type": "fixed", "delay": 500})
    async def send_email(job: Any) -> None:
        await asyncio.sleep(chance.uniform(0.01, 0.1))
        if chance.random() < 0.1:
            raise Transient("451 greylisted, try again later")

    @app.job("embed", protocol="streams")
    async def embed(job: Any) -> dict[str, int]:
        await job.emit("embed.words", {"count": len(job.data["text"].split())})
        await asyncio.sleep(chance.uniform(0.01, 0.1))
        return {"vectors": 1}

    @app.job("transcode", queue="films", protocol="bridgemq")
    async def transcode(job: Any) -> None:
        await asyncio.sleep(chance.uniform(0.01, 0.2))

    async def produce() -> None:
        number = 0
        while True:
            number += 1
            later = 1000 if number % 5 == 0 else 0
            await send_email.add({"number": number}, priority=number % 3, delay=later)
            await embed.add({"text": f"text number {number} of the herd"})
            await transcode.add({"film": number})
            await asyncio.sleep(PAUSE_S)

    return produce
