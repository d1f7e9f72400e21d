"""Photo albums: flows whose parents wait for their children, and processors that work in steps."""

import asyncio
import json
import sys
import time

from bullmq import DelayedError, FlowProducer, Job, Queue, WaitingChildrenError, Worker


async def main(url: str) -> None:
    opts = {"connection": url}
    flows, albums, photos = FlowProducer(opts), Queue("albums", opts), Queue("photos", opts)
    results: list = []
    done = asyncio.Event()

    async def develop(job: Job, token: str):
        if job.data.get("step") is None and job.data["photo"] == 2:
            # not now: the bath is warming up
            await job.updateData({**job.data, "step": "warm"})
            await job.moveToDelayed(round(time.time() * 1000) + 80, token)
            raise DelayedError
        return f"photo {job.data['photo']} {job.data.get('step', 'cold')}"

    async def bind(job: Job, token: str):
        step = job.data.get("step", "first")
        if job.name == "empty" and step == "first":
            parent = {"id": job.id, "queue": job.queueQualifiedName}
            await photos.add("photo", {"photo": 9}, {"parent": parent})
            await job.updateData({"step": "second"})
            step = "second"
        if step == "second" and await job.moveToWaitingChildren(token, {}):
            raise WaitingChildrenError
        return {"step": step, "photos": sorted((await job.getChildrenValues()).values())}

    tree = await flows.add(
        {
            "name": "album",
            "queueName": "albums",
            "data": {"title": "summer"},
            "children": [
                {"name": "photo", "queueName": "photos", "data": {"photo": number}} for number in (1, 2, 3)
            ],
        }
    )
    parent = tree["job"]
    states = [await parent.getState(), await parent.isWaitingChildren(), len(tree["children"])]
    child = await photos.getJob(tree["children"][0]["job"].id)
    states.append(child.parentKey == f"bull:albums:{parent.id}")
    await flows.addBulk([{"name": "lone", "queueName": "albums", "data": {}}])
    await albums.add("empty", {})

    def completed(job, result) -> None:
        results.append((job.name, result))
        if len(results) == 3:
            done.set()

    binder = Worker("albums", bind, opts)
    binder.on("completed", completed)
    await asyncio.sleep(0.1)
    developer = Worker("photos", develop, {**opts, "concurrency": 3})
    await asyncio.wait_for(done.wait(), 20)
    await binder.close()
    await developer.close()

    developed = await photos.getJobs(["completed"], 0, -1, True)
    attempts = sorted((job.data["photo"], job.attemptsMade, job.attemptsStarted) for job in developed)
    missing = {"parent": {"id": "none", "queue": "bull:albums"}}
    try:
        await flows.add({"name": "album", "queueName": "albums", "opts": missing})
        error = "none"
    except Exception as raised:
        error = str(raised)
    for each in (albums, photos):
        await each.obliterate(force=True)
        await each.close()
    await flows.close()
    print(json.dumps([states, sorted(results, key=lambda row: row[0]), attempts, error], sort_keys=True))


asyncio.run(main(sys.argv[1]))
