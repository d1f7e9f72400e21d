"""A clock: a scheduler that ticks, is read, changed and removed."""

import asyncio
import json
import sys
from urllib.parse import urlsplit

import redis.asyncio as redis
from bullmq import Job, Queue, Worker
from bullmq.types import RepeatOptions


async def main(url: str) -> None:
    client = redis.Redis(host="127.0.0.1", port=urlsplit(url).port, decode_responses=True)
    queue = Queue("clocks", {"connection": client})
    told: dict = {"ticks": []}
    done = asyncio.Event()

    async def tick(job: Job, token: str):
        told["ticks"].append([job.name, job.data, job.repeatJobKey, job.opts["repeat"]["count"]])
        if len(told["ticks"]) == 5:
            done.set()

    every: RepeatOptions = {"every": 50}
    job = await queue.upsertJobScheduler("tower", every, "tick", {"hands": 2}, {"attempts": 3})
    told["first"] = [job.name, job.data, job.opts["attempts"]]
    told["is"] = [await queue.isJobScheduler("tower"), await queue.isJobScheduler("none")]
    worker = Worker("clocks", tick, {"connection": url})
    await asyncio.wait_for(done.wait(), 20)
    await worker.close()

    scheduler = await queue.getJobScheduler("tower")
    told["scheduler"] = [scheduler["key"], scheduler["name"], scheduler["every"], scheduler["template"]]
    told["counted"] = scheduler["iterationCount"] >= 5
    await queue.upsertJobScheduler("tower", {"pattern": "0 12 * * *", "tz": "Europe/Berlin", "limit": 9})
    scheduler = await queue.getJobScheduler("tower")
    told["changed"] = [scheduler["pattern"], scheduler["tz"], scheduler["limit"], "every" in scheduler]
    await queue.upsertJobScheduler("second", {"every": 3600000})
    told["all"] = sorted(each["key"] for each in await queue.getJobSchedulers(0, -1, True))
    told["count"] = await queue.getJobSchedulersCount()
    told["removed"] = [await queue.removeJobScheduler("second"), await queue.removeJobScheduler("second")]
    told["refused"] = []
    for wrong in ({}, {"every": 5, "pattern": "* * * * *"}):
        try:
            await queue.upsertJobScheduler("wrong", wrong)
        except ValueError as error:
            told["refused"].append(str(error))
    await queue.removeJobScheduler("tower")
    told["left"] = await queue.getJobSchedulersCount()
    await queue.obliterate(force=True)
    await queue.close()
    await client.aclose()
    told["ticks"] = told["ticks"][:5]
    print(json.dumps(told, sort_keys=True))


asyncio.run(main(sys.argv[1]))
