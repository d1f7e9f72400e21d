"""BullMQ's job schedulers as the gateway lists them."""

import asyncio

from corral import Corral
from corral.protocols.bullmq.schedulers.job_schedulers import JobSchedulers
from tests.support.gateway import Gateway


async def test_job_schedulers_are_listed_the_next_to_run_first(gateway: Gateway, url: str) -> None:
    async with Corral(url) as app:
        schedulers = JobSchedulers(app.binding(app.queue("mail")))
        await schedulers.upsert("yearly", {"pattern": "0 0 1 1 *", "tz": "UTC"}, name="send", data={"n": 1})
        await schedulers.upsert("often", {"every": 60_000}, options={"attempts": 4})
        await app.queue("mail").add("send")
        response = await asyncio.to_thread(gateway.client.get, "/v1/queues/bullmq/mail/schedules")
        often, yearly = response.json()["schedules"]
        assert (often["id"], often["job"]["name"]) == ("often", "often")
        assert often["job"]["extra"]["every"] == 60_000
        assert often["job"]["options"]["attempts"] == 4
        assert (yearly["id"], yearly["job"]["name"], yearly["job"]["data"]) == ("yearly", "send", {"n": 1})
        assert yearly["job"]["extra"]["pattern"] == "0 0 1 1 *"
        assert yearly["next_at"] == (await schedulers.get("yearly")).next  # type: ignore[union-attr]
