"""`corral demo --keep`: a gateway with its dashboard, workers in every protocol, and a stream of jobs."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from random import Random
from tempfile import TemporaryDirectory
from typing import Any
from urllib.request import Request, urlopen

from corral.app import Corral
from corral.cli.demo.http import gateway
from corral.cli.demo.steps import DemoOutput
from corral.cli.demo.week import Attempt, made_up_attempts, write_week
from corral.core.cron import Cron
from corral.core.job import Job
from corral.core.ports import Flow
from corral.errors import InvalidOptions, Transient, Unrecoverable
from corral.queue import Queue

FIRST_REPLAY_S = 5.0
REPLAY_S = 20.0
WEEK = 7
PAUSE_S = 0.1
"""Between two jobs of each protocol."""


async def keep(url: str, demo: DemoOutput) -> None:
    """Run until a signal comes."""
    async with Corral(url) as app:
        produce = _register(app)
        with TemporaryDirectory(prefix="corral-lake-") as folder, gateway(url, _week(app, folder)) as port:
            _print_addresses(demo, url, f"http://127.0.0.1:{port}")
            tasks = [asyncio.create_task(produce()), asyncio.create_task(_replay_some(port))]
            try:
                await app.run(concurrency=10, grace=1.0)
            finally:
                for task in tasks:
                    task.cancel()
    demo.line("stopped; the server and its data are gone")


def _week(app: Corral, folder: str) -> str | None:
    """Return a lake with a made-up week; None where the packages that read one are not installed."""
    from corral.gateway.history import check_packages

    try:
        check_packages()
    except InvalidOptions:
        return None
    now = app.clock()
    write_week(folder, now, [*made_up_attempts(now), *_nightly(now)])
    return folder


def _nightly(now: int) -> Iterator[Attempt]:
    """Yield the firings of the schedule `nightly` in that week; one of them failed."""
    cron, at = Cron.parse("0 3 * * *", "Europe/Berlin"), now
    for number in range(WEEK):
        fired = cron.last_until(at)
        assert fired is not None
        at = fired - 1
        outcome, reason = ("dead", "disk full") if number == 3 else ("completed", None)
        yield Attempt(
            "bullmq", "imports", f"repeat:nightly:{fired}", "import-file", 1, "demo-1", fired, fired + 40,
            fired + 5400 + number * 100, outcome, reason,
        )  # fmt: skip


def _print_addresses(demo: DemoOutput, url: str, address: str) -> None:
    dashboard, queues = f"{address}/", f"{address}/v1/queues"
    demo.document({"server": url, "dashboard": dashboard, "queues": queues})
    demo.line(f"server      {url}")
    demo.line(f"dashboard   {dashboard}")
    demo.line(f"queues      {queues}")
    demo.line(f"live        corral --url {url} top")
    demo.line("It runs until Ctrl-C.")


async def _replay_some(port: int) -> None:
    """Replay some dead jobs now and then, as an operator would, for the audit log and the bulk changes."""
    await asyncio.sleep(FIRST_REPLAY_S)
    while True:
        with suppress(OSError):
            await asyncio.to_thread(_post_replay, port)
        await asyncio.sleep(REPLAY_S)


def _post_replay(port: int) -> None:
    body = json.dumps({"verb": "replay", "query": "reason ~ template", "per_second": 20}).encode()
    url = f"http://127.0.0.1:{port}/v1/queues/bullmq/mail/tasks"
    headers = {"Content-Type": "application/json"}
    with urlopen(Request(url, body, headers), timeout=5) as response:
        response.read()


def _register(app: Corral) -> Callable[[], Coroutine[Any, Any, None]]:
    """Register the handlers; return the coroutine function that adds jobs for ever."""
    random = Random(2)

    @app.job("send-email", queue="mail", backoff={"type": "fixed", "delay": 500})
    async def send_email(job: Any) -> None:
        await asyncio.sleep(random.uniform(0.01, 0.1))
        chance = random.random()
        if chance < 0.1:
            raise Transient("451 greylisted, try again later")
        if chance < 0.12:
            raise Unrecoverable(f"550 mailbox user{job.data['number']}@farm.example does not exist")
        if chance < 0.125:
            raise KeyError(f"template {job.data['number'] % 7} has no field 'name'")

    @app.job("import-file", queue="imports")
    async def import_file(job: Any) -> dict[str, int]:
        for part in range(1, 11):
            await asyncio.sleep(random.uniform(0.2, 0.8))
            await job.progress(part * 10)
            await job.log(f"part {part} of 10 imported")
        return {"rows": random.randint(1_000, 90_000)}

    @app.job("embed", protocol="streams")
    async def embed(job: Any) -> dict[str, int]:
        await job.emit("embed.words", {"count": len(job.data["text"].split())})
        await asyncio.sleep(random.uniform(0.01, 0.1))
        return {"vectors": 1}

    @app.job("transcode", queue="films", protocol="bridgemq")
    async def transcode(job: Any) -> None:
        await asyncio.sleep(random.uniform(0.01, 0.2))
        if random.random() < 0.02:
            raise Unrecoverable(f"codec of film {job.data.get('film', 0)} is not known")

    app.schedule("import-file", queue="imports", id="every-minute", every=60_000)
    app.schedule("import-file", queue="imports", id="nightly", cron="0 3 * * *", timezone="Europe/Berlin")
    app.schedule("transcode", {"film": 0}, queue="films", protocol="bridgemq", id="weekly", cron="30 6 * * 1")

    async def add_flow(number: int) -> None:
        imports, mail = app.queue("imports"), app.queue("mail")
        names = [f"sales-{number}-{part}.csv" for part in range(4)]
        files = tuple(Flow(_job(imports, "import-file", {"file": name})) for name in names)
        await mail.flows.add(Flow(_job(mail, "send-email", {"number": number, "report": True}), files))

    async def produce() -> None:
        number = 0
        while True:
            number += 1
            delay = 60_000 if number % 40 == 0 else 1000 if number % 5 == 0 else 0
            mail = {"number": number, "user": {"id": number % 97}}
            await send_email.options(priority=number % 3, delay=delay).add(mail)
            await embed.add({"text": f"text number {number} of the herd"})
            await transcode.add({"film": number})
            if number % 100 == 1:
                await add_flow(number)
            await asyncio.sleep(PAUSE_S)

    return produce


def _job(queue: Queue, name: str, data: Any) -> Job:
    return Job(name=name, data=data, queue=queue.name, options=queue.options({}))
