"""Bull Board from npm on queues that Corral alone works on: lists, shows, retries, promotes, sees workers."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from corral.bullmq import Job, Queue
from tests.dropin.factory import Factory
from tests.support.node import Node, node_modules, why_no_node
from tests.support.polling import until

SCRIPT = Path(__file__).parent / "node" / "board.js"
Ask = Callable[..., Awaitable[Any]]


@pytest.fixture(scope="session", params=[5, pytest.param(6, marks=pytest.mark.faults)], ids="bullmq{}".format)
def board_process(request: pytest.FixtureRequest) -> Iterator[Node]:
    """One Bull Board for this pytest process, with each generation of BullMQ."""
    missing = why_no_node(request.param)
    if missing is None and not (node_modules() / "@bull-board" / "api").exists():
        missing = f"@bull-board/api is not in {node_modules()}: run `make` (or `npm install`) first"
    if missing:
        pytest.fail(missing, pytrace=False)
    process = Node(SCRIPT, generation=request.param)
    yield process
    process.kill()


@pytest.fixture
async def ask(board_process: Node, factory: Factory) -> AsyncIterator[Ask]:
    """Calls a route of the board, which has the queues `mail` and `photos`, and returns its response."""
    await board_process("open", url=factory.url, prefix="bull", names=["mail", "photos"])

    async def call(method: str, route: str, **body: Any) -> Any:
        params = {"queueName": "mail", **body.pop("params", {})}
        query = body.pop("query", {})
        answer = await board_process("ask", method=method, route=route, params=params, query=query, body=body)
        assert answer["status"] < 400, answer
        return answer["body"]

    yield call
    await board_process("closeAll")


async def listed(ask: Ask, status: str = "latest") -> dict[str, Any]:
    """Return the queue `mail` as the board lists it, with its jobs of a state."""
    query = {"activeQueue": "mail", "status": status, "page": "1", "jobsPerPage": "20"}
    queues = (await ask("get", "/api/queues", query=query))["queues"]
    mail: dict[str, Any] = next(queue for queue in queues if queue["name"] == "mail")
    return mail


async def fails_first(job: Job, token: str) -> Any:
    await job.log(f"attempt {job.attemptsMade}")
    await job.updateProgress(30)
    if job.name == "fails" and job.attemptsMade == 0:
        raise ValueError("not yet")
    return {"sent": job.data}


async def ran(queue: Queue, **counts: int) -> bool:
    return await queue.getJobCounts(*counts) == counts


async def test_the_board_lists_jobs_of_every_state(factory: Factory, ask: Ask) -> None:
    queue = factory.queue()
    worker = factory.worker(fails_first)
    await queue.addBulk([{"name": "works", "data": {"n": 1}}, {"name": "fails", "data": {"n": 2}}])
    await until(lambda: ran(queue, completed=1, failed=1))
    await worker.close()
    await queue.add("waits", {"n": 3})
    await queue.add("ranked", {"n": 4}, {"priority": 2})
    await queue.add("later", {"n": 5}, {"delay": 60_000})
    counts = (await listed(ask))["counts"]
    assert {state: count for state, count in counts.items() if count} == {
        "completed": 1, "failed": 1, "waiting": 1, "prioritized": 1, "delayed": 1,
    }  # fmt: skip
    for state, name in [
        ("completed", "works"), ("failed", "fails"), ("waiting", "waits"), ("prioritized", "ranked"),
        ("delayed", "later"),
    ]:  # fmt: skip
        [job] = (await listed(ask, state))["jobs"]
        assert job["name"] == name
    [failed] = (await listed(ask, "failed"))["jobs"]
    assert (failed["failedReason"], failed["attempts"], failed["progress"]) == ("not yet", 1, 30)
    assert "ValueError: not yet" in failed["stacktrace"][0]
    [completed] = (await listed(ask, "completed"))["jobs"]
    assert completed["returnValue"] == {"sent": {"n": 1}}


async def test_the_board_shows_a_job_with_its_log_and_its_flow(factory: Factory, ask: Ask) -> None:
    queue = factory.queue()
    await factory.flows().add(
        {"name": "album", "queueName": "mail", "opts": {"jobId": "album"}, "children": [
            {"name": "photo", "queueName": "photos", "opts": {"jobId": "photo"}}]}
    )  # fmt: skip
    await queue.addJobLog("album", "a line")
    page = await ask("get", "/api/queues/:queueName/:jobId", params={"jobId": "album"})
    assert (page["job"]["name"], page["status"]) == ("album", "waiting-children")
    assert await ask("get", "/api/queues/:queueName/:jobId/logs", params={"jobId": "album"}) == ["a line"]
    flow = await ask("get", "/api/queues/:queueName/:jobId/flow", params={"jobId": "album"})
    assert "photo" in str(flow)


async def test_a_job_the_board_retries_is_run_again(factory: Factory, ask: Ask) -> None:
    queue = factory.queue()
    factory.worker(fails_first)
    await queue.addBulk([{"name": "fails"}, {"name": "fails"}])
    await until(lambda: ran(queue, failed=2))
    await ask("put", "/api/queues/:queueName/:jobId/retry", params={"jobId": "1"})
    await until(lambda: ran(queue, failed=1, completed=1))
    await ask("put", "/api/queues/:queueName/retry/:queueStatus", params={"queueStatus": "failed"})
    await until(lambda: ran(queue, failed=0, completed=2))
    job = await queue.getJob("1")
    assert job is not None
    assert (job.attemptsMade, job.returnvalue) == (2, {"sent": {}})


async def test_jobs_the_board_promotes_run_now(factory: Factory, ask: Ask) -> None:
    queue = factory.queue()
    factory.worker(fails_first)
    await queue.addBulk([{"name": "works", "opts": {"delay": 60_000}}] * 3)
    await ask("put", "/api/queues/:queueName/:jobId/promote", params={"jobId": "1"})
    await until(lambda: ran(queue, completed=1, delayed=2))
    await ask("put", "/api/queues/:queueName/promote")
    assert await until(lambda: ran(queue, completed=3, delayed=0))


async def test_the_board_sees_workers(factory: Factory, ask: Ask) -> None:
    assert (await listed(ask))["hasWorkers"] is False
    factory.worker(fails_first, called="packer")
    factory.worker(fails_first)
    await until(lambda: has_workers(factory, 2))
    assert (await listed(ask))["hasWorkers"] is True
    workers = (await ask("get", "/api/queues/:queueName/workers"))["workers"]
    assert len(workers) == 2
    assert "packer" in str(workers)


async def has_workers(factory: Factory, count: int) -> bool:
    return await factory.queue().getWorkersCount() == count


async def test_the_board_pauses_adds_changes_and_cleans(factory: Factory, ask: Ask) -> None:
    queue = factory.queue()
    factory.worker(fails_first)
    await ask("put", "/api/queues/:queueName/pause")
    assert await queue.isPaused() is (await listed(ask))["isPaused"] is True
    await ask("post", "/api/queues/:queueName/add", name="works", data={"n": 1}, options={})
    await ask("patch", "/api/queues/:queueName/:jobId/update-data", params={"jobId": "1"}, jobData={"n": 2})
    assert await queue.getWaitingCount() == 1
    await ask("put", "/api/queues/:queueName/resume")
    await until(lambda: ran(queue, completed=1))
    job = await queue.getJob("1")
    assert job is not None
    assert job.returnvalue == {"sent": {"n": 2}}
    await ask("put", "/api/queues/:queueName/:jobId/clean", params={"jobId": "1"})
    assert await queue.getJob("1") is None


async def test_the_board_lists_and_removes_schedulers(factory: Factory, ask: Ask) -> None:
    queue = factory.queue()
    await queue.upsertJobScheduler("daily", {"pattern": "0 9 * * *", "tz": "UTC"}, "send", {"n": 1})
    [scheduler] = (await ask("get", "/api/job-schedulers"))["schedulers"]
    assert (scheduler["id"], scheduler["pattern"], scheduler["queueName"]) == ("daily", "0 9 * * *", "mail")
    assert scheduler["template"]["data"] == {"n": 1}
    await ask(
        "put", "/api/queues/:queueName/job-schedulers/:schedulerId/remove", params={"schedulerId": "daily"}
    )
    assert await queue.getJobSchedulersCount() == 0
