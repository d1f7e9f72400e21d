"""The history that is read from a lake: series, sums, search, one job; and what is said without one."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from corral.cli.demo.week import Attempt, write_week
from corral.errors import InvalidOptions
from corral.gateway import GatewaySettings, history, history_documents
from corral.gateway.server import check_settings
from tests.support.gateway import Gateway, problem_of
from tests.support.servers import Server

HOUR = 3_600_000
NOW = 1_767_225_600_000 + 100 * 24 * HOUR


def attempt(number: int, hours_ago: float, outcome: str = "completed", **more: Any) -> Attempt:
    """An attempt that waited 100 ms, ran 200 ms and ended so long ago."""
    ended = NOW - round(hours_ago * HOUR)
    values: dict[str, Any] = {
        "protocol": "bullmq", "queue": "mail", "job_id": f"{number}", "name": "send", "attempt": 1,
        "worker": "mailer-1", "queued_at": ended - 300, "started_at": ended - 200, "ended_at": ended,
        "outcome": outcome, "reason": "550 no mailbox" if outcome != "completed" else None,
    }  # fmt: skip
    return Attempt(**{**values, **more})


ATTEMPTS = [
    *(attempt(number, 30) for number in range(10)),
    *(attempt(number, 5, "dead") for number in range(10, 13)),
    attempt(20, 3, "retry"),
    attempt(20, 2.9, attempt=2, worker="mailer-2"),
    attempt(30, 40, name="render", queue="reports", protocol="bridgemq", started_at=NOW - 41 * HOUR),
    attempt(31, 24 * 20),
]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("lake"))
    write_week(path, NOW, ATTEMPTS)
    return path


@pytest.fixture(scope="module")
def with_lake(valkey: Server, lake: str) -> Iterator[Gateway]:
    gateway = Gateway(valkey.url, lake=lake, redis_timeout_s=10)
    yield gateway
    gateway.stop()


def get(gateway: Gateway, path: str, **parameters: Any) -> Any:
    response = gateway.client.get(f"/v1/history{path}", params=parameters)
    assert response.status_code == 200, response.text
    return response.json()


def test_series_and_sums_of_a_week(with_lake: Gateway) -> None:
    view = get(with_lake, "", until=NOW)
    history_documents.HistoryView.model_validate(view)
    series, points = view["series"], len(view["series"]["completed"])
    assert points * view["step_ms"] >= 7 * 24 * HOUR
    assert (sum(series["completed"]), sum(series["dead"]), sum(series["retry"])) == (12, 3, 1)
    assert sum(series["added"]) == 15
    spike = series["dead"].index(3)
    at = view["from"] + spike * view["step_ms"]
    assert at <= NOW - 5 * HOUR < at + view["step_ms"]
    assert (series["wait_p95"][spike], series["run_p50"][spike]) == (100, 200)
    assert series["run_p50"][0] is None, "there is no value where nothing ended"
    queues = {(row["protocol"], row["queue"]): row for row in view["queues"]}
    assert queues["bullmq", "mail"]["completed"] == 11
    assert queues["bullmq", "mail"]["reason"] == "550 no mailbox"
    workers = {(row["protocol"], row["worker"]): row["completed"] for row in view["workers"]}
    assert workers == {("bullmq", "mailer-1"): 10, ("bullmq", "mailer-2"): 1, ("bridgemq", "mailer-1"): 1}
    assert view["slowest"][0]["name"] == "render"
    assert (view["failing"][0]["name"], view["failing"][0]["dead"]) == ("send", 3)
    assert view["reaches_to"] == NOW - round(2.9 * HOUR)


def test_one_queue_one_name_one_worker(with_lake: Gateway) -> None:
    assert sum(get(with_lake, "", until=NOW, queue="bridgemq/reports")["series"]["completed"]) == 1
    assert sum(get(with_lake, "", until=NOW, name="send")["series"]["dead"]) == 3
    of_worker = get(with_lake, "", until=NOW, worker="mailer-2")
    assert (sum(of_worker["series"]["completed"]), of_worker["series"]["added"]) == (1, None)
    month = get(with_lake, "", since=NOW - 30 * 24 * HOUR, until=NOW)
    assert sum(month["series"]["completed"]) == 13


def test_rates_of_every_queue_over_days(with_lake: Gateway) -> None:
    rates = get(with_lake, "/rates", until=NOW)
    assert {key: sum(one["completed"]) for key, one in rates["queues"].items()} == {
        "bullmq/mail": 11,
        "bridgemq/reports": 1,
    }
    assert sum(rates["queues"]["bullmq/mail"]["retry"]) == 1


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ("state = dead", ["10", "11", "12"]),
        ("name = render", ["30"]),
        ("id = 31", ["31"]),
        ("reason ~ MAILBOX and worker = mailer-1", ["10", "11", "12"]),
        ("attempts > 1", ["20"]),
        (f"finished >= {NOW - 6 * HOUR} and finished < {NOW - 4 * HOUR}", ["10", "11", "12"]),
        (f"created < {NOW - 10 * 24 * HOUR}", ["31"]),
        ("worker != mailer-1", ["20"]),
        ("attempts > many", []),
    ],
)
def test_jobs_that_the_server_has_forgotten_are_found(with_lake: Gateway, query: str, ids: list[str]) -> None:
    jobs = get(with_lake, "/jobs", query=query)["jobs"]
    assert sorted(job["id"] for job in jobs) == ids


def test_pages_have_every_job_once(with_lake: Gateway) -> None:
    found: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        page = get(with_lake, "/jobs", queue="bullmq/mail", limit=3, cursor=cursor)
        found += [job["id"] for job in page["jobs"]]
        cursor = page["next"]
    assert sorted(found, key=int) == [*map(str, [*range(13), 20, 31])]
    assert found[0] == "20", "the last added first"


def test_what_the_lake_does_not_keep_is_refused_by_name(with_lake: Gateway) -> None:
    response = with_lake.client.get("/v1/history/jobs", params={"query": "data.user.id = 17"})
    assert problem_of(response) == (422, "invalid-request")
    assert "keeps no data of jobs" in response.json()["detail"]
    assert problem_of(with_lake.client.get("/v1/history?since=5&until=4")) == (422, "invalid-request")
    assert problem_of(with_lake.client.get("/v1/history?days=4")) == (422, "invalid-request")


def test_one_job_with_its_attempts_and_events(with_lake: Gateway) -> None:
    job = get(with_lake, "/jobs/bullmq/mail/20")
    history_documents.HistoryJobDetail.model_validate(job)
    assert [(one["attempt"], one["outcome"], one["worker"]) for one in job["attempts"]] == [
        (1, "retry", "mailer-1"),
        (2, "completed", "mailer-2"),
    ]
    assert [event["kind"] for event in job["events"]] == ["added", "active", "retry", "active", "completed"]
    assert problem_of(with_lake.client.get("/v1/history/jobs/bullmq/mail/999")) == (404, "job-not-found")


def test_without_a_lake_it_says_how_to_have_one(valkey: Server, tmp_path: Path) -> None:
    for options, word in (({}, "--lake PATH"), ({"lake": str(tmp_path)}, f"corral lake run {tmp_path}")):
        gateway = Gateway(valkey.url, redis_timeout_s=10, **options)
        try:
            response = gateway.client.get("/v1/history")
            assert problem_of(response) == (404, "no-lake")
            assert word in response.json()["detail"]
            assert gateway.client.get("/v1/session").json()["has_lake"] is bool(options)
        finally:
            gateway.stop()


def test_a_lake_that_cannot_be_read_is_a_503_with_its_reason(valkey: Server, tmp_path: Path) -> None:
    write_week(str(tmp_path), NOW, ATTEMPTS)
    for file in (tmp_path / "attempts").rglob("*.parquet"):
        file.write_bytes(b"not a table")
    gateway = Gateway(valkey.url, redis_timeout_s=10, lake=str(tmp_path))
    try:
        response = gateway.client.get("/v1/history", params={"until": NOW})
        assert problem_of(response) == (503, "lake-unreadable")
        assert "cannot be read" in response.json()["detail"]
    finally:
        gateway.stop()


def test_a_question_that_takes_too_long_is_given_up(
    lake: str, valkey: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "QUERY_S", 0.0)
    gateway = Gateway(valkey.url, redis_timeout_s=10, lake=lake)
    try:
        response = gateway.client.get("/v1/history", params={"until": NOW})
        assert problem_of(response) == (503, "lake-unreadable")
        assert "ask for fewer days" in response.json()["detail"]
    finally:
        gateway.stop()


def test_a_lake_needs_its_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "find_spec", lambda name: None if name == "duckdb" else name)
    monkeypatch.setenv("CORRAL_LAKE", "history")
    with pytest.raises(InvalidOptions, match=r"\(duckdb\); pip install 'corral\[lake\]'"):
        check_settings("127.0.0.1")
    assert GatewaySettings().lake == "history"
