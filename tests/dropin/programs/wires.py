"""A newsroom's wires: listeners, events of one's own, deduplication, limits, and jobs told to end."""

import asyncio
import json
import sys

from bullmq import AbortError, Queue, QueueEvents, QueueEventsProducer, Worker


async def main(url: str) -> None:
    opts = {"connection": url}
    queue = Queue("wires", opts)
    events = QueueEvents("wires", {**opts, "lastEventId": "0-0"})
    heard: list = []
    for event in ("added", "waiting", "active", "progress", "completed", "failed", "greeted", "deduplicated"):
        events.on(event, lambda args, event_id, event=event: heard.append([event, args]))
    events.on("completed:2", lambda args, event_id: heard.append(["completed:2", args]))
    told: dict = {"failed": [], "cancelled": []}

    await QueueEventsProducer("wires", opts).publishEvent({"eventName": "greeted", "who": "you"})
    first = await queue.add("story", {"n": 1}, {"deduplication": {"id": "story"}})
    twice = await queue.add("story", {"n": 2}, {"deduplication": {"id": "story"}})
    told["deduplicated"] = [twice.id == first.id, await queue.getDeduplicationJobId("story") == first.id]
    await queue.add("photo", {"n": 3})
    told["counts"] = [await queue.getWaitingCount(), await queue.getCompletedCount()]

    await queue.pause()
    told["paused"] = [await queue.isPaused()]
    running: set = set()

    async def process(job, token, signal):
        running.add(job.id)
        if job.name == "long":
            await signal.wait()
            raise AbortError(signal.reason)
        await job.updateProgress({"read": job.data["n"]})
        return [job.data["n"]]

    worker = Worker("wires", process, {**opts, "concurrency": 2, "name": "factory"})
    worker.on("failed", lambda job, error: told["failed"].append([job.name, str(error)]))
    await asyncio.sleep(0.1)
    told["paused"].append(len(running))
    await queue.resume()
    told["paused"].append(await queue.isPaused())

    async def until(condition) -> None:
        async with asyncio.timeout(20):
            while not condition():
                await asyncio.sleep(0.01)

    await until(lambda: sum(event == "completed" for event, _ in heard) == 2)
    long = await queue.add("long", {})
    await until(lambda: long.id in running)
    told["cancelled"] = [worker.cancelJob(long.id, "deadline"), worker.cancelJob("none")]
    await until(lambda: any(event == "failed" for event, _ in heard))
    told["released"] = await queue.getDeduplicationJobId("story")

    await worker.pause()
    waits = await queue.add("story", {"n": 4})
    await asyncio.sleep(0.1)
    told["worker paused"] = [await waits.getState()]
    worker.resume()
    await until(lambda: any(event == "completed" and args["jobId"] == waits.id for event, args in heard))

    await queue.setGlobalConcurrency(7)
    await queue.setGlobalRateLimit(5, 1000)
    told["limits"] = [await queue.getGlobalConcurrency(), await queue.getGlobalRateLimit()]
    await queue.removeGlobalConcurrency()
    await queue.removeGlobalRateLimit()
    told["limits"] += [await queue.getGlobalConcurrency(), await queue.getGlobalRateLimit()]
    await worker.close()
    await events.close()
    await queue.addBulk([{"name": "old", "data": {}, "opts": {"delay": 60000}} for _ in range(3)])
    await queue.promoteJobs()
    told["promoted"] = await queue.getDelayedCount()
    await queue.drain()
    told["drained"] = await queue.getWaitingCount()
    await queue.retryJobs({"state": "failed"})
    told["retried"] = [await queue.getFailedCount(), await queue.getWaitingCount()]
    told["cleaned"] = len(await queue.clean(0, 10, "completed"))
    await queue.obliterate(force=True)
    await queue.close()
    for event in heard:
        event[1].pop("deduplicatedJobId", None)
    told["heard"] = sorted((event for event in heard if event[0] not in ("added",)), key=json.dumps)
    print(json.dumps(told, sort_keys=True))


asyncio.run(main(sys.argv[1]))
