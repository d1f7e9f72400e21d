"""A real worker of each kind, each on a queue of its own with its own clock, leaves the same state behind."""

import json
from typing import Any

from corral import Corral
from corral.core.job import JobState
from tests.protocols.bullmq.scripted_handler import play
from tests.support.compare import Period, differences
from tests.support.keyspace import Keyspace, look
from tests.support.node import Node
from tests.support.polling import until
from tests.support.servers import Server

WORK: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"return": {"ok": "☃"}}, {}),
    ({"progress": [10, {"half": [True]}], "log": ["one", "zwei ✓"], "return": [1, None]}, {}),
    ({"fail": 1, "message": "not yet"}, {"attempts": 2, "backoff": 30}),
    ({"fail": -1, "message": "nie: größer"}, {"attempts": 3, "backoff": 10}),
    ({"fail": -1, "message": "never", "unrecoverable": True}, {"attempts": 5}),
    ({"return": "prioritized"}, {"priority": 4}),
    ({"return": "delayed"}, {"delay": 40}),
    ({"return": "gone at once"}, {"removeOnComplete": True}),
    ({"fail": -1, "message": "gone at once"}, {"attempts": 1, "removeOnFail": True}),
    ({"return": "the last three stay"}, {"removeOnComplete": 3}),
    ({"log": [str(n) for n in range(8)], "return": None}, {"keepLogs": 5, "lifo": True}),
    ({"return": 1}, {"jobId": "mine"}),
]
DEFAULTS: dict[str, Any] = {"attempts": 1, "backoff": 1000, "keepLogs": 1000}
NATIVE = {"keepLogs": "keep_logs", "removeOnComplete": "remove_on_complete", "removeOnFail": "remove_on_fail",
          "jobId": "id"}  # fmt: skip


async def test_a_real_worker_of_each_kind_leaves_the_same_state(node: Node, server: Server) -> None:
    app = Corral(server.url, namespaces={"bullmq": "corral"})
    app.job("send", queue="mail")(play)
    where = {"name": "mail", "prefix": "node", "url": server.url}
    await node("openQueue", handle="queue", **where, opts={})
    begin = app.clock()
    await node("runWorker", handle="worker", **where, script={}, opts={"name": "anna"})
    [worker] = app.workers(concurrency=1, name="anna")
    await worker.start()
    try:
        for script, opts in WORK:
            await add_to_both(node, app, {"script": script}, {**DEFAULTS, **opts})
            theirs, ours = await until(lambda: both_at_rest(app, server), f"both have worked {script}")
            take_traces_apart(theirs, ours)
            found = differences(theirs, ours, during=Period(begin, app.clock(), ahead=1_000))
            assert not found, f"after {script}:\n  " + "\n  ".join(found)
    finally:
        await worker.stop()
        await app.close()
    counts = {name: len(ours[name].value) for name in ("completed", "failed")}
    assert counts == {"completed": 5, "failed": 2}


async def add_to_both(node: Node, app: Corral, data: Any, opts: dict[str, Any]) -> None:
    job = await node("add", queue="queue", name="send", data=data, opts=opts)
    native = {NATIVE.get(name, name): value for name, value in opts.items()}
    assert (await app.queue("mail").add("send", data, **native)).id == job["id"]


async def both_at_rest(app: Corral, server: Server) -> tuple[Keyspace, Keyspace] | None:
    """Both keyspaces, once nothing is left to do and both workers wait again, having used up the marker."""
    with server.connect() as client:
        waiting = sum(each["cmd"] == "bzpopmin" for each in client.client_list())
        theirs, ours = look(client, "node:mail:", "corral:mail:")
    busy = {"wait", "active", "delayed", "prioritized", "marker"}
    if waiting != 2 or busy & (theirs.keys() | ours.keys()):
        return None
    counts = await app.queue("mail").counts()
    assert counts[JobState.ACTIVE] == 0
    # what a handler reported is marked for the life of a lock, beside what Node writes
    return theirs, {name: value for name, value in ours.items() if not name.endswith(":marks")}


def take_traces_apart(theirs: Keyspace, ours: Keyspace) -> None:
    """A trace is its language's own; how many there are is not."""
    for name in theirs.keys() & ours.keys():
        pair = [space[name].value for space in (theirs, ours) if space[name].kind == "hash"]
        lengths = [len(json.loads(fields.pop("stacktrace"))) for fields in pair if "stacktrace" in fields]
        assert len(lengths) in (0, 2)
        assert len(set(lengths)) <= 1
