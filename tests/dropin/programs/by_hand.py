"""Jobs taken by hand: each move, and what is said where one cannot be made."""

import asyncio
import json
import sys
from urllib.parse import urlsplit

from bullmq import Job, Queue, Worker


async def said(call) -> list:
    """How a call that must fail fails."""
    try:
        await call
    except Exception as error:
        return [type(error).__name__, str(error)]
    return ["no error", ""]


async def main(url: str) -> None:
    where = {"host": "127.0.0.1", "port": urlsplit(url).port}
    queue = Queue("chores", {"connection": where, "defaultJobOptions": {"attempts": 2}})
    worker = Worker("chores", None, {"connection": where, "lockDuration": 20000})
    told: dict = {}

    job = await queue.add("wash", {"plates": 4})
    assert job.opts["attempts"] == 2
    taken = await worker.getNextJob("token-1")
    assert isinstance(taken, Job)
    told["taken"] = [taken.id, taken.name, taken.data, taken.attemptsStarted, await taken.isActive()]
    told["held"] = await said(taken.remove())
    told["stranger"] = await said(taken.moveToCompleted(1, "token-2"))
    await taken.moveToFailed(ValueError("no water"), "token-1")
    told["tried again"] = [await job.getState(), (await queue.getJob(job.id)).failedReason]
    taken = await worker.getNextJob("token-3")
    await taken.moveToFailed(ValueError("no soap"), "token-3")
    told["failed"] = [await job.getState(), taken.attemptsMade, taken.failedReason]
    told["wrong state"] = await said(taken.retry("completed"))
    await taken.retry()
    told["again"] = [await job.getState(), taken.failedReason]
    taken = await worker.getNextJob("token-4")
    await taken.moveToCompleted({"clean": True}, "token-4")
    told["completed"] = [await job.getState(), (await queue.getJob(job.id)).returnvalue]
    told["too late"] = await said(taken.moveToCompleted(1, "token-4"))

    later = await queue.add("dry", {}, {"delay": 60000})
    await later.promote()
    told["promoted"] = [await later.getState(), later.delay, await said(later.promote())]
    await later.changePriority({"priority": 3})
    told["priority"] = [await later.getState(), later.priority, await queue.getCountsPerPriority([0, 3])]
    told["removed"] = [await queue.remove(later.id), await queue.getJob(later.id)]
    told["gone"] = [
        await said(later.updateData({})),
        await said(later.updateProgress(1)),
        await said(later.changePriority({"priority": 1})),
        await said(later.retry()),
    ]
    told["no parent"] = await said(queue.add("dry", {}, {"parent": {"id": "x", "queue": "bull:none"}}))
    policies = {"failParentOnFailure": True, "removeDependencyOnFailure": True}
    told["too many policies"] = await said(queue.add("dry", {}, policies))
    told["not json"] = (await said(queue.add("dry", {"a": float("nan")})))[0]

    await queue.add("sweep", {})
    assert await worker.getNextJob("token-5") is not None
    told["obliterate"] = await said(queue.obliterate())
    await queue.obliterate(force=True)
    await worker.close()
    await queue.close()
    print(json.dumps(told, sort_keys=True))


asyncio.run(main(sys.argv[1]))
