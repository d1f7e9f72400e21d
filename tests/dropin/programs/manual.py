"""Jobs claimed manually: each move, and the error where it is refused."""

import asyncio
import json
import sys
from urllib.parse import urlsplit

from bullmq import Job, Queue, Worker


async def error_of(call) -> list:
    """Return the type and message of a call's error."""
    try:
        await call
    except Exception as error:
        return [type(error).__name__, str(error)]
    return ["no error", ""]


async def main(url: str) -> None:
    where = {"host": "127.0.0.1", "port": urlsplit(url).port}
    queue = Queue("chores", {"connection": where, "defaultJobOptions": {"attempts": 2}})
    worker = Worker("chores", None, {"connection": where, "lockDuration": 20000})
    report: dict = {}

    job = await queue.add("wash", {"plates": 4})
    assert job.opts["attempts"] == 2
    taken = await worker.getNextJob("token-1")
    assert isinstance(taken, Job)
    report["taken"] = [taken.id, taken.name, taken.data, taken.attemptsStarted, await taken.isActive()]
    report["held"] = await error_of(taken.remove())
    report["wrong token"] = await error_of(taken.moveToCompleted(1, "token-2"))
    await taken.moveToFailed(ValueError("no water"), "token-1")
    report["retried"] = [await job.getState(), (await queue.getJob(job.id)).failedReason]
    taken = await worker.getNextJob("token-3")
    await taken.moveToFailed(ValueError("no soap"), "token-3")
    report["failed"] = [await job.getState(), taken.attemptsMade, taken.failedReason]
    report["wrong state"] = await error_of(taken.retry("completed"))
    await taken.retry()
    report["again"] = [await job.getState(), taken.failedReason]
    taken = await worker.getNextJob("token-4")
    await taken.moveToCompleted({"clean": True}, "token-4")
    report["completed"] = [await job.getState(), (await queue.getJob(job.id)).returnvalue]
    report["too late"] = await error_of(taken.moveToCompleted(1, "token-4"))

    later = await queue.add("dry", {}, {"delay": 60000})
    await later.promote()
    report["promoted"] = [await later.getState(), later.delay, await error_of(later.promote())]
    await later.changePriority({"priority": 3})
    report["priority"] = [await later.getState(), later.priority, await queue.getCountsPerPriority([0, 3])]
    report["removed"] = [await queue.remove(later.id), await queue.getJob(later.id)]
    report["gone"] = [
        await error_of(later.updateData({})),
        await error_of(later.updateProgress(1)),
        await error_of(later.changePriority({"priority": 1})),
        await error_of(later.retry()),
    ]
    report["no parent"] = await error_of(queue.add("dry", {}, {"parent": {"id": "x", "queue": "bull:none"}}))
    policies = {"failParentOnFailure": True, "removeDependencyOnFailure": True}
    report["too many policies"] = await error_of(queue.add("dry", {}, policies))
    report["not json"] = (await error_of(queue.add("dry", {"a": float("nan")})))[0]

    await queue.add("sweep", {})
    assert await worker.getNextJob("token-5") is not None
    report["obliterate"] = await error_of(queue.obliterate())
    await queue.obliterate(force=True)
    await worker.close()
    await queue.close()
    print(json.dumps(report, sort_keys=True))


asyncio.run(main(sys.argv[1]))
