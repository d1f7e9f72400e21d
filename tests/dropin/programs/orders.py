"""A shop's orders: jobs with priorities, delays and retries, and a worker that reports how they ended."""

import asyncio
import json
import sys

from bullmq import Job, Queue, UnrecoverableError, Worker


async def main(url: str) -> None:
    opts = {"connection": url, "prefix": "shop"}
    queue = Queue("orders", opts)
    seen: dict[str, list] = {"active": [], "completed": [], "failed": [], "order": []}

    await queue.add("ship", {"order": 1, "to": "Köln"}, {"jobId": "order-1"})
    await queue.addBulk(
        [
            {"name": "ship", "data": {"order": 2}, "opts": {"priority": 5}},
            {"name": "ship", "data": {"order": 3}, "opts": {"priority": 1}},
            {"name": "refund", "data": {"order": 4}, "opts": {"attempts": 3, "backoff": 20}},
            {"name": "fraud", "data": {"order": 5}, "opts": {"attempts": 5}},
        ]
    )
    delayed = await queue.add("remind", {"order": 6}, {"delay": 300})
    assert await delayed.getState() == "delayed"
    assert delayed.delay == 300
    before = await queue.getJobCounts("waiting", "prioritized", "delayed", "active")
    before.pop("paused", None)

    async def process(job: Job, token: str):
        seen["order"].append(job.data["order"])
        assert token == job.token
        await job.updateProgress(50)
        await job.log(f"order {job.data['order']}")
        if job.name == "refund" and job.attemptsMade < 2:
            raise ValueError(f"bank closed {job.attemptsMade}")
        if job.name == "fraud":
            raise UnrecoverableError("never")
        return {"shipped": job.data["order"]}

    done = asyncio.Event()

    def ended(*_) -> None:
        if len(seen["completed"]) == 5 and any(order == 5 for order, _ in seen["failed"]):
            done.set()

    worker = Worker("orders", process, opts)
    worker.on("active", lambda job, previous: seen["active"].append((job.data["order"], previous)))
    worker.on("completed", lambda job, result: (seen["completed"].append(result["shipped"]), ended()))
    worker.on("failed", lambda job, error: (seen["failed"].append((job.data["order"], str(error))), ended()))
    await asyncio.wait_for(done.wait(), 20)
    await worker.close()

    jobs = {}
    for job_id in ("order-1", "2", "3", "4", "5", "6"):
        job = await Job.fromId(queue, job_id)
        assert job is not None
        assert job.finishedOn >= job.processedOn >= job.timestamp
        jobs[job_id] = {
            "name": job.name,
            "data": job.data,
            "returnvalue": job.returnvalue,
            "failedReason": job.failedReason,
            "attempts": [job.opts.get("attempts"), job.attemptsMade, job.attemptsStarted],
            "progress": job.progress,
            "priority": job.priority,
            "state": [await job.getState(), await job.isCompleted(), await job.isFailed()],
            "traces": len(job.stacktrace),
            "logs": await queue.getJobLogs(job_id),
        }
    after = await queue.getJobCounts("completed", "failed", "waiting", "active")
    after.pop("paused", None)
    completed = sorted(job.id for job in await queue.getCompleted())
    failed = [job.id for job in await queue.getFailed()]
    assert await queue.getJob("none") is None
    assert await queue.getJobState("none") == "unknown"
    await queue.obliterate(force=True)
    assert sum((await queue.getJobCounts()).values()) == 0
    await queue.close()
    seen = {name: sorted(rows) if name != "order" else rows[:3] for name, rows in seen.items()}
    print(json.dumps([before, after, completed, failed, jobs, seen], sort_keys=True))


asyncio.run(main(sys.argv[1]))
