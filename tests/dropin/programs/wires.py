"""A newsroom's wires: listeners, custom events, deduplication, limits, and cancelled jobs."""

import asyncio
import json
import sys

from bullmq import AbortError, Queue, QueueEvents, QueueEventsProducer, Worker


async def main(url: str) -> None:
    opts = {"connection": url}
    queue = Queue("wires", opts)
    events = QueueEvents("wires", {**opts, "lastEventId": "0-0"})
    received: list = []
    for event in ("added", "waiting", "active", "progress", "completed", "failed", "greeted", "deduplicated"):
        events.on(event, lambda args, event_id, event=event: received.append([event, args]))
    events.on("completed:2", lambda args, event_id: received.append(["completed:2", args]))
    report: dict = {"failed": [], "cancelled": []}

    await QueueEventsProducer("wires", opts).publishEvent({"eventName": "greeted", "who": "you"})
    first = await queue.add("story", {"n": 1}, {"deduplication": {"id": "story"}})
    twice = await queue.add("story", {"n": 2}, {"deduplication": {"id": "story"}})
    report["deduplicated"] = [twice.id == first.id, await queue.getDeduplicationJobId("story") == first.id]
    await queue.add("photo", {"n": 3})
    report["counts"] = [await queue.getWaitingCount(), await queue.getCompletedCount()]

    await queue.pause()
    report["paused"] = [await queue.isPaused()]
    running: set = set()

    async def process(job, token, signal):
        running.add(job.id)
        if job.name == "long":
            await signal.wait()
            raise AbortError(signal.reason)
        await job.updateProgress({"read": job.data["n"]})
        return [job.data["n"]]

    worker = Worker("wires", process, {**opts, "concurrency": 2, "name": "press"})
    worker.on("failed", lambda job, error: report["failed"].append([job.name, str(error)]))
    await asyncio.sleep(0.1)
    report["paused"].append(len(running))
    await queue.resume()
    report["paused"].append(await queue.isPaused())

    async def until(condition) -> None:
        async with asyncio.timeout(20):
            while not condition():
                await asyncio.sleep(0.01)

    await until(lambda: sum(event == "completed" for event, _ in received) == 2)
    long = await queue.add("long", {})
    await until(lambda: long.id in running)
    report["cancelled"] = [worker.cancelJob(long.id, "deadline"), worker.cancelJob("none")]
    await until(lambda: any(event == "failed" for event, _ in received))
    report["released"] = await queue.getDeduplicationJobId("story")

    await worker.pause()
    waits = await queue.add("story", {"n": 4})
    await asyncio.sleep(0.1)
    report["worker paused"] = [await waits.getState()]
    worker.resume()
    await until(lambda: any(event == "completed" and args["jobId"] == waits.id for event, args in received))

    await queue.setGlobalConcurrency(7)
    await queue.setGlobalRateLimit(5, 1000)
    report["limits"] = [await queue.getGlobalConcurrency(), await queue.getGlobalRateLimit()]
    await queue.removeGlobalConcurrency()
    await queue.removeGlobalRateLimit()
    report["limits"] += [await queue.getGlobalConcurrency(), await queue.getGlobalRateLimit()]
    await worker.close()
    await events.close()
    await queue.addBulk([{"name": "old", "data": {}, "opts": {"delay": 60000}} for _ in range(3)])
    await queue.promoteJobs()
    report["promoted"] = await queue.getDelayedCount()
    await queue.drain()
    report["drained"] = await queue.getWaitingCount()
    await queue.retryJobs({"state": "failed"})
    report["retried"] = [await queue.getFailedCount(), await queue.getWaitingCount()]
    report["cleaned"] = len(await queue.clean(0, 10, "completed"))
    await queue.obliterate(force=True)
    await queue.close()
    for event in received:
        event[1].pop("deduplicatedJobId", None)
    report["events"] = sorted((event for event in received if event[0] not in ("added",)), key=json.dumps)
    print(json.dumps(report, sort_keys=True))


asyncio.run(main(sys.argv[1]))
