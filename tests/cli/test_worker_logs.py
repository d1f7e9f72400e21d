"""What `corral worker` logs: the lines of handlers with their jobs, failures with class and traceback."""

import json
from pathlib import Path
from typing import Any

import pytest

from corral import Corral
from tests.support.shell import corral, start

SHOP = """
import asyncio, logging
from corral import Corral

app = Corral()
log = logging.getLogger("shop")

@app.job(queue="mail")
async def on_the_loop(job):
    log.info("before")
    await asyncio.sleep(0.01)
    log.info("after")

@app.job(queue="mail")
def in_a_thread(job):
    log.info("in a thread")

@app.job(queue="mail", process=True)
def in_a_process(job):
    log.info("in a process")

@app.job(queue="mail", process=True)
async def on_a_loop_of_a_process(job):
    log.info("on a loop of a process")

@app.job(queue="mail")
async def fails(job):
    return {}["milk"]
"""
HANDLERS = ("on_the_loop", "in_a_thread", "in_a_process", "on_a_loop_of_a_process", "fails")


@pytest.fixture
def folder(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an app in `shop.py`, and a job for each of its handlers in the queue."""
    (tmp_path / "shop.py").write_text(SHOP)
    monkeypatch.setenv("REDIS_URL", url)
    app = Corral(url)
    app.sync(app.queue("mail").add_many([(name, None) for name in HANDLERS], attempts=2))
    app.sync(app.close())
    app.sync.close()
    return tmp_path


def test_a_handlers_own_lines_have_its_job_and_failures_their_class_and_traceback(folder: Path) -> None:
    worker = start("worker", "shop:app", "--burst", "--log-level", "debug", "--json", cwd=folder)
    _, err = worker.communicate(timeout=60)
    lines: list[dict[str, Any]] = [json.loads(line) for line in err.splitlines()]
    own = {line["event"]: line for line in lines if line.get("logger") == "shop"}
    for event, job, name in (
        ("before", "1", "on_the_loop"),
        ("after", "1", "on_the_loop"),
        ("in a thread", "2", "in_a_thread"),
        ("in a process", "3", "in_a_process"),
        ("on a loop of a process", "4", "on_a_loop_of_a_process"),
    ):
        line = own[event]
        assert (line["job"], line["name"], line["queue"], line["attempt"]) == (job, name, "mail", 1)
    assert all("job" not in line for line in lines if line["event"] in ("working", "stopped"))
    [failure] = [line for line in lines if line["event"] == "an attempt failed"]
    assert (failure["job"], failure["error"], failure["level"]) == ("5", "KeyError", "error")
    assert failure["reason"] == "KeyError: 'milk'"
    assert failure["exception"].startswith("Traceback (most recent call last):\n")
    assert "shop.py" in failure["exception"]
    assert sorted(line["job"] for line in lines if line["event"] == "completed") == ["1", "2", "3", "4"]
    assert "KeyError: 'milk'" in corral("dlq", "ls", "mail").out
