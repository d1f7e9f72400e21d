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
    report: dict = {"ticks": []}
    done = asyncio.Event()

    async def tick(job: Job, token: str):
        report["ticks"].append([job.name, job.data, job.repeatJobKey, job.opts["repeat"]["count"]])
        if len(report["ticks"]) == 5:
            done.set()

    every: RepeatOptions = {"every": 50}
    job = await queue.upsertJobScheduler("tower", every, "tick", {"hands": 2}, {"attempts": 3})
    report["first"] = [job.name, job.data, job.opts["attempts"]]
    report["is"] = [await queue.isJobScheduler("tower"), await queue.isJobScheduler("none")]
    worker = Worker("clocks", tick, {"connection": url})
    await asyncio.wait_for(done.wait(), 20)
    await worker.close()

    scheduler = await queue.getJobScheduler("tower")
    report["scheduler"] = [scheduler["key"], scheduler["name"], scheduler["every"], scheduler["template"]]
    report["counted"] = scheduler["iterationCount"] >= 5
    await queue.upsertJobScheduler("tower", {"pattern": "0 12 * * *", "tz": "Europe/Berlin", "limit": 9})
    scheduler = await queue.getJobScheduler("tower")
    report["changed"] = [scheduler["pattern"], scheduler["tz"], scheduler["limit"], "every" in scheduler]
    await queue.upsertJobScheduler("second", {"every": 3600000})
    report["all"] = sorted(each["key"] for each in await queue.getJobSchedulers(0, -1, True))
    report["count"] = await queue.getJobSchedulersCount()
    report["removed"] = [await queue.removeJobScheduler("second"), await queue.removeJobScheduler("second")]
    report["refused"] = []
    for wrong in ({}, {"every": 5, "pattern": "* * * * *"}):
        try:
            await queue.upsertJobScheduler("wrong", wrong)
        except ValueError as error:
            report["refused"].append(str(error))
    await queue.removeJobScheduler("tower")
    report["left"] = await queue.getJobSchedulersCount()
    await queue.obliterate(force=True)
    await queue.close()
    await client.aclose()
    report["ticks"] = report["ticks"][:5]
    print(json.dumps(report, sort_keys=True))


asyncio.run(main(sys.argv[1]))
