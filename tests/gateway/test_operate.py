"""What operators do by HTTP: add, search, change in bulk, group, schedule, follow."""

import asyncio
from typing import Any

import orjson
import pytest

from corral import Corral, Job, Unrecoverable
from corral.core.ports import Flow
from corral.protocols import all_protocols, protocol_names
from tests.gateway.conftest import OpenGateway
from tests.support.apps import ended, working
from tests.support.gateway import Gateway, problem_of
from tests.support.polling import eventually
from tests.support.servers import Server
from tests.support.sse import Tail

QUEUES = {"bullmq": ("mail", "send"), "bridgemq": ("mail", "send"), "streams": ("jobs", "embed")}
every_protocol = pytest.mark.parametrize("protocol", protocol_names())


def path_of(protocol: str) -> str:
    return f"/v1/queues/{protocol}/{QUEUES[protocol][0]}"


def add(gateway: Gateway, protocol: str, data: Any = None, **more: Any) -> str:
    document = {"name": QUEUES[protocol][1], "data": data or {}, **more}
    response = gateway.client.post(f"{path_of(protocol)}/jobs", json=document)
    assert response.status_code == 201, response.text
    return str(response.json()["id"])


async def run_all(url: str, protocol: str, ids: list[str]) -> None:
    """Have a worker run these jobs; those with `fail` die."""
    async with Corral(url) as app:
        queue, name = QUEUES[protocol]

        @app.job(name, queue=queue, protocol=protocol)
        async def run(job: Any) -> None:
            if "fail" in job.data:
                raise Unrecoverable(job.data["fail"])

        async with working(app, queues=[queue], protocol=protocol):
            for job_id in ids:
                await ended(app.queue(queue, protocol), job_id)


# -- jobs ---------------------------------------------------------------------------------------------------


@every_protocol
def test_a_job_is_added_to_any_queue(gateway: Gateway, protocol: str) -> None:
    job_id = add(gateway, protocol, {"to": "ada@x.org"})
    job = gateway.client.get(f"{path_of(protocol)}/jobs/{job_id}").json()
    assert (job["data"], job["state"]) == ({"to": "ada@x.org"}, "waiting")


def test_a_job_that_counts_as_another_is_not_added_again(gateway: Gateway) -> None:
    for unique in ("order-17", True, {"key": "order-18", "period": 60_000}):
        job = {"name": "a", "data": {"unique": str(unique)}, "options": {"unique": unique}}
        answers = [gateway.client.post("/v1/queues/bullmq/new/jobs", json=job).json() for _ in range(2)]
        assert [answer["existed"] for answer in answers] == [False, True]
        assert answers[0]["id"] == answers[1]["id"]
    refused = gateway.client.post(
        "/v1/queues/streams/jobs/jobs", json={"name": "embed", "options": {"debounce": 5}}
    )
    assert problem_of(refused) == (409, "unsupported")
    assert "protocol 'streams' has no delay" in refused.json()["detail"]


def test_a_new_queue_needs_a_valid_name_and_its_options_are_checked(gateway: Gateway) -> None:
    post = gateway.client.post
    assert post("/v1/queues/bullmq/new/jobs", json={"name": "a"}).status_code == 201
    for path, document in (
        ("/v1/queues/bullmq/a:b/jobs", {"name": "a"}),
        ("/v1/queues/bullmq/mail/jobs", {"name": "a", "options": {"delay": -1}}),
        ("/v1/queues/bullmq/mail/jobs", {"name": "a", "options": {"dely": 1}}),
    ):
        assert problem_of(post(path, json=document)) == (422, "invalid-request")
    assert (
        problem_of(post("/v1/queues/streams/jobs/jobs", json={"name": "embed", "options": {"delay": 5}}))[0]
        == 409
    )


def test_a_waiting_job_is_changed_where_the_protocol_can(gateway: Gateway) -> None:
    job_id = add(gateway, "bullmq", {"n": 1}, options={"delay": 60_000})
    path = f"{path_of('bullmq')}/jobs/{job_id}"
    changed = gateway.client.patch(path, json={"data": {"n": 2}, "priority": 7}).json()
    assert changed["data"] == {"n": 2}
    assert gateway.client.patch(path, json={"data": None}).json()["data"] is None
    assert problem_of(gateway.client.patch(f"{path}9", json={"priority": 1})) == (404, "job-not-found")
    other = add(gateway, "bridgemq")
    response = gateway.client.patch(f"{path_of('bridgemq')}/jobs/{other}", json={"priority": 1})
    assert problem_of(response) == (409, "unsupported")


def test_limits_of_a_queue_are_shown_and_set(gateway: Gateway) -> None:
    add(gateway, "bullmq")
    limits = {"concurrency": 3, "rate": {"count": 10, "duration": 1000}}
    assert gateway.client.put(f"{path_of('bullmq')}/limits", json=limits).json() == limits
    assert gateway.client.get(path_of("bullmq")).json()["limits"] == limits
    gateway.client.put(f"{path_of('bullmq')}/limits", json={})
    assert gateway.client.get(path_of("bullmq")).json()["limits"] == {"concurrency": None, "rate": None}


def test_a_queue_is_obliterated_where_the_protocol_can(gateway: Gateway) -> None:
    add(gateway, "bullmq")
    assert gateway.client.post(f"{path_of('bullmq')}/obliterate", json={}).status_code == 200
    assert not [
        queue for queue in gateway.client.get("/v1/queues").json()["queues"] if queue["queue"] == "mail"
    ]


@every_protocol
def test_what_a_protocol_lacks_is_what_it_refuses(gateway: Gateway, protocol: str) -> None:
    job_id = add(gateway, protocol)
    path = path_of(protocol)
    lacks = gateway.client.get(path).json()["lacks"]
    calls: dict[str, tuple[str, str, Any]] = {
        "pause": ("POST", "/pause", None),
        "resume": ("POST", "/resume", None),
        "retry": ("POST", "/retry", {"ids": [job_id]}),
        "replay": ("POST", "/tasks", {"verb": "replay"}),
        "promote": ("POST", "/promote", {"ids": [job_id]}),
        "update": ("PATCH", f"/jobs/{job_id}", {"priority": 1}),
        "limits": ("PUT", "/limits", {"concurrency": 1}),
        "schedules": ("GET", "/schedules", None),
        "flows": ("GET", "/flows", None),
        "obliterate": ("POST", "/obliterate", {"force": True}),
    }
    for verb, (method, rest, body) in calls.items():
        response = gateway.client.request(method, path + rest, json=body)
        if verb in lacks:
            assert problem_of(response) == (409, "unsupported"), verb
            assert response.json()["detail"].startswith(f"protocol {protocol!r} has no "), verb
        else:
            assert response.status_code < 300, (verb, response.text)
    assert set(lacks) <= {*calls, "pause-schedule"}
    [spec] = [one.spec for one in all_protocols() if one.spec.name == protocol]
    assert set(lacks) == set(spec.lacks)


# -- search and bulk ----------------------------------------------------------------------------------------


def search(gateway: Gateway, protocol: str, query: str, limit: int = 50) -> list[Any]:
    jobs, cursor = [], ""
    while cursor is not None:
        params = {"query": query, "cursor": cursor, "limit": limit}
        page = gateway.client.get(f"{path_of(protocol)}/search", params=params).json()
        jobs += page["jobs"]
        cursor = page["next"]
    return jobs


@every_protocol
def test_jobs_are_found_by_conditions(gateway: Gateway, protocol: str) -> None:
    wanted = add(gateway, protocol, {"user": {"id": 17}, "to": "Ada@x.org"})
    for number in range(250):
        add(gateway, protocol, {"user": {"id": 1000 + number}})
    for query in (
        "data.user.id = 17",
        'data ~ "ada@"',
        f"id = {wanted}",
        f"state = waiting and id = {wanted}",
    ):
        assert {job["id"] for job in search(gateway, protocol, query)} == {wanted}, query
    assert search(gateway, protocol, "data.user.id = 18") == []
    everything = search(gateway, protocol, "", limit=7)
    assert len({job["id"] for job in everything}) == 251, "pages of any size miss nothing"
    response = gateway.client.get(f"{path_of(protocol)}/search", params={"query": "data.user ="})
    assert problem_of(response) == (422, "invalid-request")
    assert "data.user" in response.json()["detail"]


@pytest.mark.parametrize("protocol", ["bullmq", "bridgemq"])
async def test_dead_jobs_are_grouped_and_a_group_is_replayed(
    gateway: Gateway, server: Server, protocol: str
) -> None:
    fails = [*(f"550 no mailbox user{n}@x.org" for n in range(6)), "451 greylisted"]
    ids = [add(gateway, protocol, {"fail": text}) for text in fails]
    await run_all(server.url, protocol, ids)

    def look() -> list[Any]:
        return list(gateway.client.get(f"{path_of(protocol)}/dead-letters/groups").json()["groups"])

    first, second = look()
    assert (first["count"], second["count"]) == (6, 1)
    assert "no mailbox …" in first["shape"]
    query = f"state = dead and group = {first['id']}"
    count = gateway.client.get(
        f"{path_of(protocol)}/matches", params={"verb": "replay", "query": query}
    ).json()
    assert count == {"count": 6, "is_complete": True}
    task = gateway.client.post(f"{path_of(protocol)}/tasks", json={"verb": "replay", "query": query})
    assert (task.status_code, task.json()["total"]) == (202, 7)
    assert eventually(lambda: gateway.client.get(task.headers["location"]).json()["state"] == "completed")
    progress = gateway.client.get(task.headers["location"]).json()
    assert (progress["done"], progress["not_done"], progress["errors"]) == (6, 0, [])
    assert [group["count"] for group in look()] == [1]
    assert gateway.client.get(path_of(protocol)).json()["counts"]["waiting"] == 6
    assert gateway.client.get("/v1/tasks").json()["tasks"][0]["id"] == task.json()["id"]


def test_a_bulk_change_keeps_to_its_rate_and_can_be_stopped(gateway: Gateway) -> None:
    for _ in range(30):
        add(gateway, "bullmq", options={"delay": 600_000})
    task = gateway.client.post(
        f"{path_of('bullmq')}/tasks", json={"verb": "promote", "per_second": 10}
    ).json()
    path = f"/v1/tasks/{task['id']}"
    assert eventually(lambda: gateway.client.get(path).json()["done"] >= 10)
    assert gateway.client.delete(path).status_code == 200
    assert eventually(lambda: gateway.client.get(path).json()["state"] == "stopped")
    assert 10 <= gateway.client.get(path).json()["done"] < 30
    assert problem_of(gateway.client.get("/v1/tasks/nothing")) == (404, "task-not-found")


# -- schedules, flows, workers, server ----------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["bullmq", "bridgemq"])
def test_a_schedule_is_added_listed_run_and_removed(gateway: Gateway, protocol: str) -> None:
    add(gateway, protocol)
    path = f"{path_of(protocol)}/schedules/nightly"
    document = {"name": "send", "data": {"n": 1}, "cron": "0 3 * * *", "timezone": "Europe/Berlin"}
    assert gateway.client.put(path, json=document).status_code == 200
    [schedule] = gateway.client.get("/v1/schedules").json()["schedules"]
    assert (schedule["id"], schedule["protocol"], schedule["rule"]["cron"]) == (
        "nightly",
        protocol,
        "0 3 * * *",
    )
    assert len(schedule["firings"]) == 10
    assert schedule["firings"] == sorted(schedule["firings"])
    assert schedule["firings"][0] == schedule["next_at"]
    gateway.client.put(path, json={**document, "cron": "0 4 * * *"})
    assert gateway.client.get("/v1/schedules").json()["schedules"][0]["rule"]["cron"] == "0 4 * * *"
    assert gateway.client.post(f"{path}/run").status_code == 202
    assert gateway.client.delete(path).json() == {"removed": "nightly"}
    assert problem_of(gateway.client.delete(path)) == (404, "schedule-not-found")
    for wrong in ({"cron": "no"}, {}, {"cron": "* * * * *", "every_ms": 5}):
        assert problem_of(gateway.client.put(path, json={"name": "send", **wrong})) in (
            (422, "invalid-request"), (409, "unsupported"),
        )  # fmt: skip


async def test_a_flow_is_shown_as_a_tree(gateway: Gateway, server: Server) -> None:
    async with Corral(server.url) as app:
        mail, files = app.queue("mail"), app.queue("files")

        def job(queue: Any, name: str) -> Job:
            return Job(name=name, data={}, queue=queue.name, options=queue.options({}))

        children = tuple(Flow(job(files, f"part-{n}")) for n in range(3))
        flow = await mail.flows.add(Flow(job(mail, "report"), children))
    path = f"/v1/queues/bullmq/mail/jobs/{flow.job.id}"
    tree = gateway.client.get(f"{path}/flow").json()
    assert (tree["name"], tree["state"], tree["hidden"]) == ("report", "waiting", 0)
    assert sorted(child["name"] for child in tree["children"]) == ["part-0", "part-1", "part-2"]
    [parent] = gateway.client.get("/v1/queues/bullmq/mail/flows").json()["jobs"]
    assert parent["id"] == flow.job.id
    child = gateway.client.get(f"/v1/queues/bullmq/files/jobs/{tree['children'][0]['id']}").json()
    assert child["extra"]["parentKey"] == f"bull:mail:{flow.job.id}", "text, not base64"
    assert problem_of(gateway.client.get("/v1/queues/bullmq/mail/jobs/none/flow")) == (404, "job-not-found")


@every_protocol
async def test_workers_are_listed_with_what_they_run(gateway: Gateway, server: Server, protocol: str) -> None:
    job_id = add(gateway, protocol)
    queue, name = QUEUES[protocol]
    going = asyncio.Event()
    async with Corral(server.url) as app:

        @app.job(name, queue=queue, protocol=protocol)
        async def run(job: Any) -> None:
            await going.wait()

        async with working(app, queues=[queue], protocol=protocol, name="bessie"):

            def runs() -> Any:
                workers = gateway.client.get("/v1/workers").json()["workers"]
                return [job for worker in workers if worker["name"] == "bessie" for job in worker["jobs"]]

            [job] = await asyncio.to_thread(eventually, runs)
            assert (job["id"], job["queue"]) == (job_id, queue)
            going.set()
            await ended(app.queue(queue, protocol), job_id)


def test_the_server_is_described_with_what_the_doctor_finds(gateway: Gateway) -> None:
    document = gateway.client.get("/v1/server").json()
    assert document["nodes"][0]["used_memory"] > 0
    findings = {finding["check"]: finding for finding in document["findings"]}
    assert findings["eviction"]["level"] == "fine"
    assert {"version", "persistence", "memory", "clock"} <= findings.keys()


# -- activity -----------------------------------------------------------------------------------------------


async def test_activity_sums_up_events_and_the_last_hour(gateway: Gateway, server: Server) -> None:
    with Tail(gateway.url, "/v1/activity") as tail:
        events = iter(tail)
        assert next(events).kind == "hello"
        ids = [add(gateway, "bullmq", {"fail": "no"} if n == 0 else {}) for n in range(5)]
        await run_all(server.url, "bullmq", ids)
        kinds: dict[str, int] = {}
        while kinds.get("completed", 0) < 4 or kinds.get("dead", 0) < 1:
            event = await asyncio.to_thread(next, events)
            part = orjson.loads(event.data)["queues"].get("bullmq/mail", {"kinds": {}})
            for kind, count in part["kinds"].items():
                kinds[kind] = kinds.get(kind, 0) + count
    assert kinds["added"] == 5
    hour = gateway.client.get("/v1/rates").json()["queues"]["bullmq/mail"]
    assert (sum(hour["completed"]), sum(hour["dead"]), len(hour["added"])) == (4, 1, 60)
    assert hour["run_ms"]["count"] == 5


def test_rates_are_full_at_the_first_request(open_gateway: OpenGateway, gateway: Gateway) -> None:
    for _ in range(3):
        add(gateway, "bullmq")
    fresh = open_gateway()
    assert sum(fresh.client.get("/v1/rates").json()["queues"]["bullmq/mail"]["added"]) == 3


# -- audit --------------------------------------------------------------------------------------------------


def test_changes_are_recorded_and_reads_are_not(gateway: Gateway) -> None:
    job_id = add(gateway, "bullmq", {"n": 1})
    gateway.client.post(f"{path_of('bullmq')}/pause")
    gateway.client.post(f"{path_of('bullmq')}/jobs/{job_id}/remove")
    gateway.client.get(path_of("bullmq"))
    gateway.client.post(f"{path_of('bullmq')}/jobs/none/remove")
    entries = gateway.client.get("/v1/audit").json()["entries"]
    assert [(one["action"], one["queue"], one["subject"]) for one in entries] == [
        ("changeJob remove", "mail", job_id),
        ("pauseQueue", "mail", ""),
        ("addJob", "mail", ""),
    ]
    assert {one["via"] for one in entries} == {"http"}
    page = gateway.client.get("/v1/audit", params={"limit": 2}).json()
    assert len(page["entries"]) == 2
    [last] = gateway.client.get("/v1/audit", params={"limit": 2, "cursor": page["next"]}).json()["entries"]
    assert last["action"] == "addJob"
    assert orjson.loads(last["detail"])["data"] == {"n": 1}
