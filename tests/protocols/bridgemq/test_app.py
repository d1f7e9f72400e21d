"""The native interface to this protocol, written as its users write it."""

import asyncio
import json
import signal
import time
import urllib.request
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from corral import (
    Corral,
    InvalidName,
    InvalidOptions,
    InvalidPayload,
    JobState,
    RedisConnectionError,
    Unsupported,
)
from corral.core.ports import Gauge
from corral.telemetry.metrics import ProtocolGauges
from tests.support.apps import ended, reached, working
from tests.support.polling import becomes_true, eventually
from tests.support.servers import Server, free_port
from tests.support.shell import start

BERLIN_FIVE = {"cron": "*/5 * * * *", "timezone": "Europe/Berlin"}
MINUTE = 60_000


@pytest.fixture
async def app(server: Server) -> AsyncIterator[Corral]:
    async with Corral(server.url) as app:
        yield app


def report_of(app: Corral) -> None:
    @app.job("report", protocol="bridgemq", queue="reports", attempts=2)
    async def report(job):
        return "done"


# -- a routed, limited job ----------------------------------------------------------------------------------


async def test_a_job_with_a_target_and_a_rate_runs_where_it_fits(app: Corral, server: Server):
    running = most = 0

    @app.job(
        "transcode",
        protocol="bridgemq",
        target={"capabilities": ["gpu"], "region": ["us-east"], "mode": "all"},
        rate={"concurrent": 3, "per_minute": 100},
    )
    async def transcode(job):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.005)
        running -= 1
        return {"frames": job.data["frames"]}

    @app.job("sweep", protocol="bridgemq")
    async def sweep(job):
        return "clean"

    jobs = [await transcode.add({"frames": number}) for number in range(12)]
    behind = await sweep.add()
    async with working(app, name="plain"):
        await ended(sweep.queue, behind.id)
        with server.connect() as client:
            assert client.llen("bridge:jobs:waiting") == 12, "who took the one behind them fits none of these"
    async with working(app, server_id="w1", capabilities=["gpu"], region="us-east"):
        done = [await ended(transcode.queue, job.id) for job in jobs]
    assert [job.result for job in done] == [{"frames": number} for number in range(12)]
    assert {job.worker for job in done} == {"w1"}
    assert most == 3
    with server.connect() as client:
        assert client.get("bridge:ratelimit:minute:transcode") == b"12"


async def test_a_wrong_option_is_found_where_the_handler_is_written(app: Corral):
    with pytest.raises(InvalidOptions, match="target mode is 'some'; use 'all' or 'any'"):
        app.job("transcode", protocol="bridgemq", target={"mode": "some"})
    with pytest.raises(InvalidOptions, match="rate has 'per_hour'; use 'concurrent', 'per_minute'"):
        app.job("transcode", protocol="bridgemq", rate={"per_hour": 7})


async def test_a_worker_that_says_what_it_can_do_must_serve_a_protocol_that_routes(app: Corral):
    app.job("mail")(lambda job: None)
    with pytest.raises(InvalidOptions, match="capabilities is for protocols that route jobs"):
        app.workers(capabilities=["gpu"])


# -- schedules ----------------------------------------------------------------------------------------------


async def test_a_schedule_as_it_is_written_is_there_when_the_app_runs(app: Corral, server: Server):
    report_of(app)
    report = app.schedule("report", cron="*/5 * * * *", timezone="Europe/Berlin")
    with server.connect() as client:
        assert client.dbsize() == 0, "nothing is written before the app runs"
        async with working(app):
            assert await becomes_true(lambda: client.zscore("bridge:jobs:cron", "report") is not None)
        due = client.zscore("bridge:jobs:cron", "report")
        stored = json.loads(client.get("bridge:jobs:data:report"))
    assert due % (5 * MINUTE) == 0
    assert 0 < due - time.time() * 1000 <= 5 * MINUTE
    assert stored["schedule"] == {**BERLIN_FIVE, "catchUp": "once"}
    assert (stored["type"], stored["queue"], stored["maxAttempts"]) == ("report", "reports", 2)
    assert repr(report) == "ScheduledJob('report', cron='*/5 * * * *', queue='reports')"


async def test_each_tick_runs_as_a_job_of_its_own(server: Server):
    async with Corral(server.url, protocol="bridgemq") as app:
        ran = []

        @app.job("tick")
        async def tick(job):
            ran.append((job.id, job.data))

        app.schedule("tick", {"n": 1}, cron="* * * * * *", catch_up="all", id="every-second")
        async with working(app):
            assert await becomes_true(lambda: len(ran) >= 2)
    times = [int(job_id.removeprefix("every-second@")) for job_id, _ in ran]
    assert times == list(range(times[0], times[-1] + 1, 1000))
    assert all(data == {"n": 1} for _, data in ran)


async def test_starting_again_keeps_the_next_firing_and_another_cron_changes_it(app: Corral, server: Server):
    report_of(app)
    report = app.schedule("report", **BERLIN_FIVE)
    assert await report.start() == "added"
    assert await app.start_schedules() == {"report": "kept"}
    async with Corral(server.url) as later:
        report_of(later)
        changed = later.schedule("report", cron="@daily", timezone="Europe/Berlin")
        assert await changed.start() == "changed"


async def test_one_schedule_is_paused_resumed_run_now_and_stopped(app: Corral):
    report_of(app)
    report = app.schedule("report", {"for": "all"}, **BERLIN_FIVE)
    other = app.schedule("report", id="other", **BERLIN_FIVE)
    schedules = report.queue.schedules
    assert await report.run_now() is None, "it was never started"
    await app.start_schedules()
    assert await report.pause()
    assert {one.id: one.next_at is None for one in await schedules.list()} == {
        "report": True, "other": False,
    }  # fmt: skip
    fired = await report.run_now()
    assert fired is not None
    assert fired.startswith("report@")
    job = await report.queue.job(fired)
    assert job is not None
    assert (job.state, job.data, job.options.attempts) == (JobState.WAITING, {"for": "all"}, 2)
    assert await report.resume()
    assert all(one.next_at for one in await schedules.list())
    assert await report.stop()
    assert [one.id for one in await schedules.list()] == ["other"]
    assert (await report.queue.job(fired)) is not None, "what it fired stays"
    assert not await report.stop()
    assert await other.stop()


async def test_a_protocol_without_schedules_refuses_one(app: Corral, server: Server):
    app.job("report")(lambda job: None)
    with pytest.raises(Unsupported, match="protocol 'streams' has no cron, so cron='@daily' cannot be kept"):
        app.schedule("report", cron="@daily", protocol="streams")
    with pytest.raises(Unsupported, match="'bridgemq' has no intervals, so every=60000 cannot be kept"):
        app.schedule("report", every=60_000, protocol="bridgemq")
    with server.connect() as client:
        assert client.dbsize() == 0


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"cron": "61 * * * *"}, "minute '61' is outside 0..59"),
        ({"cron": "* * *"}, "has 3 fields; use five"),
        ({"cron": "@sometimes"}, "cron '@sometimes' is not known; use @yearly"),
        ({"cron": None}, "cron is None; use text such as"),
        ({"cron": "@daily", "timezone": "Europe/Berln"}, "did you mean 'Europe/Berlin'?"),
        ({"cron": "@daily", "catch_up": "some"}, "catch_up is 'some'; use 'skip', 'once', 'all'"),
        ({"cron": "@daily", "delay": 5}, "cron '@daily' and delay=5: give one of them"),
        ({"cron": "@daily", "target": {"mode": "some"}}, "target mode is 'some'; use 'all' or 'any'"),
        ({"cron": "@daily", "attempts": 0}, "attempts is 0"),
    ],
)
async def test_a_schedule_that_cannot_be_kept_is_refused_where_it_is_written(
    app: Corral, options: dict, told: str
):
    with pytest.raises(InvalidOptions) as refusal:
        app.schedule("report", protocol="bridgemq", **options)
    assert told in str(refusal.value)
    assert app._schedules == {}


async def test_names_that_cannot_be_ids_and_ids_that_are_taken_are_refused(app: Corral):
    with pytest.raises(InvalidName, match="or give the schedule an id of its own"):
        app.schedule("send the report", cron="@daily", protocol="bridgemq")
    assert app.schedule("send the report", cron="@daily", protocol="bridgemq", id="weekly").id == "weekly"
    with pytest.raises(InvalidName, match="there is a schedule 'weekly' already"):
        app.schedule("another", cron="@daily", protocol="bridgemq", id="weekly")


async def test_a_name_that_two_queues_handle_needs_the_queue(app: Corral):
    for queue in ("a", "b"):
        app.job("report", protocol="bridgemq", queue=queue)(lambda job: None)
    with pytest.raises(InvalidOptions, match="there are handlers of 'report' in Queue\\('a'"):
        app.schedule("report", cron="@daily")
    assert app.schedule("report", cron="@daily", queue="b").queue.name == "b"


async def test_oversized_data_leaves_the_keyspace_untouched(app: Corral, server: Server):
    heavy = app.schedule("report", {"text": "x" * 11_000_000}, cron="@daily", protocol="bridgemq")
    with pytest.raises(InvalidPayload, match=r"exceeds limit of 10\.0 MB"):
        await heavy.start()
    with server.connect() as client:
        assert client.dbsize() == 0


# -- gauges -------------------------------------------------------------------------------------------------


async def test_a_worker_exports_the_monitoring_keys_to_prometheus(
    app: Corral, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "studio.py").write_text(MODULE)
    monkeypatch.setenv("REDIS_URL", server.url)
    await app.queue(protocol="bridgemq").add_many([("transcode", {}, {"target": {"server": "nobody"}})] * 3)
    port = free_port()
    process = start("worker", "studio:app", "--server-id", "w1", "--health-port", str(port), cwd=tmp_path)

    def scraped() -> str:
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as page:
            return page.read().decode()
        return ""

    try:
        assert await becomes_true(lambda: "bridgemq_workers_alive 1.0" in scraped(), 40)
        lines = scraped().splitlines()
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    assert "# TYPE bridgemq_jobs_waiting gauge" in lines
    for line in ("waiting 3.0", "active 0.0", "delayed 0.0", "cron 1.0", "deadletter 0.0"):
        assert f"bridgemq_jobs_{line}" in lines


async def test_while_the_server_does_not_answer_the_other_metrics_are_still_told(app: Corral):
    app.job("film", protocol="bridgemq")(lambda job: None)

    def away() -> list[Gauge]:
        raise RedisConnectionError("no server")

    gauges: list[Gauge] = [Gauge("a", "b", 1, {"type": 'q"\n'}), Gauge("a", "b", 2, {"type": "r"})]
    app.metrics.registry.register(ProtocolGauges(lambda: gauges))
    assert b'a{type="r"} 2.0' in app.metrics.exposition()
    app.metrics.registry.register(ProtocolGauges(away))
    assert b"corral_redis_up" in app.metrics.exposition()


# -- corral worker ------------------------------------------------------------------------------------------

MODULE = """
import os
from corral import Corral

app = Corral()

TARGET = {"capabilities": ["gpu"], "region": ["us-east"], "mode": "all"}


@app.job("transcode", protocol="bridgemq", target=TARGET)
async def transcode(job):
    return job.job.worker

@app.job("mail")
async def mail(job): ...

app.schedule("transcode", cron="@daily", id="nightly")
"""


async def test_the_flags_of_a_worker_reach_the_registry_and_the_routing(
    app: Corral, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "studio.py").write_text(MODULE)
    monkeypatch.setenv("REDIS_URL", server.url)
    queue = app.queue(protocol="bridgemq")
    target = {"capabilities": ["gpu"], "region": ["us-east"], "mode": "all"}
    job = await queue.add("transcode", {}, target=target)
    pinned = await queue.add("transcode", {}, target={"server": "w2"})
    words = "--capability gpu --capability cuda,sms --region us-east --server-id w1 --stack python"
    process = start("worker", "studio:app", *words.split(), cwd=tmp_path)
    try:
        done = await ended(queue, job.id, 40)
        assert (done.state, done.worker) == (JobState.COMPLETED, "w1")
        await reached(queue, pinned.id, JobState.WAITING)
        with server.connect() as client:
            told = json.loads(client.get("bridge:workers:w1"))
            assert client.zscore("bridge:jobs:cron", "nightly") is not None
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    assert told["capabilities"] == ["cuda", "gpu", "sms"]
    assert (told["serverId"], told["region"], told["stack"]) == ("w1", "us-east", "python")
    with server.connect() as client:
        assert eventually(lambda: not client.exists("bridge:workers:w1"))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--capability", "gpu,,cuda"], "a word is empty"),
        (["--server-id", "a:b"], "server id 'a:b' does not fit"),
        (["--protocol", "bullmq", "--capability", "gpu"], "is for protocols that route jobs"),
    ],
)
def test_flags_that_cannot_be_kept_end_the_command(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], told: str
):
    (tmp_path / "studio.py").write_text(MODULE)
    monkeypatch.setenv("REDIS_URL", server.url)
    process = start("worker", "studio:app", *words, cwd=tmp_path)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 2
    assert told in " ".join(error.split())
