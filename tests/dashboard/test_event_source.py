"""EventSource in headless Chromium: a real browser tails a job, loses its gateway, and comes back."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import redis
from starlette.requests import Request
from starlette.responses import HTMLResponse

from corral.gateway import Settings, create_app
from tests.support.gateway import Gateway
from tests.support.polling import eventually
from tests.support.servers import Server

CHROMIUM = shutil.which("chromium")

PAGE = """<!doctype html><title>tail</title><pre id=out></pre><script>
const told = [], states = [];
const source = new EventSource("/v1/jobs/JOB/events");
const keep = (event) => {
  // the contract has a type `error`, and the browser's own word for a broken line is the same
  if (event.data === undefined) { states.push(source.readyState); return; }
  told.push([event.type, event.lastEventId]);
};
for (const type of ["hello", "queued", "running", "progress", "done", "error", "gateway.stop"])
  source.addEventListener(type, keep);
const watch = setInterval(() => {
  // after the end the gateway answers 204, at which a browser gives up for good
  if (source.readyState !== EventSource.CLOSED) return;
  clearInterval(watch);
  document.getElementById("out").textContent = JSON.stringify({told, states});
  fetch("/told", {method: "POST", body: document.getElementById("out").textContent});
}, 20);
</script>"""

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")


class Stage:
    """A gateway that also serves one page, and hears what the page has seen."""

    def __init__(self, url: str) -> None:
        self.heard: dict[str, Any] | None = None
        settings = {"sweep_s": 0.05, "retry_ms": 100, "answer_s": 10}
        app = create_app(Settings(redis_url=url, **settings))
        app.add_route("/page/{job_id}", self._page)
        app.add_route("/told", self._told, methods=["POST"])
        self.gateway = Gateway(url, app=app, **settings)

    async def _page(self, request: Request) -> HTMLResponse:
        # the gateway's own answers may run no script; this page is the test's
        policy = {"Content-Security-Policy": "default-src 'self' 'unsafe-inline'"}
        return HTMLResponse(PAGE.replace("JOB", request.path_params["job_id"]), headers=policy)

    async def _told(self, request: Request) -> HTMLResponse:
        self.heard = orjson.loads(await request.body())
        return HTMLResponse("")

    def break_lines(self) -> None:
        """Abort every connection, as a network does."""
        loop = self.gateway.hall._publishing.get_loop()
        for connection in list(self.gateway.server.server_state.connections):
            loop.call_soon_threadsafe(connection.transport.abort)


def browse(url: str, folder: Path) -> "subprocess.Popen[bytes]":
    assert CHROMIUM is not None
    return subprocess.Popen(
        [
            *(CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
            *("--no-first-run", "--disable-extensions", "--disable-background-networking"),
            *(f"--user-data-dir={folder}", "--remote-debugging-port=0", url),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


@pytest.fixture
def stage(server: Server) -> Iterator[Stage]:
    stage = Stage(server.url)
    yield stage
    stage.gateway.stop()


def test_a_browser_follows_a_job_through_broken_lines_to_its_end(
    stage: Stage, client: redis.Redis, tmp_path: Path
) -> None:
    job_id = stage.gateway.submit()

    def tell(kind: str) -> str:
        fields = {"type": kind, "ts": "1", "step": "stranger", "data": "{}"}
        return client.xadd(f"job:{job_id}:events", fields).decode()

    ids = [client.xrange(f"job:{job_id}:events")[0][0].decode()]
    tails = stage.gateway.hall.tails
    browser = browse(f"{stage.gateway.url}/page/{job_id}", tmp_path)
    try:
        assert eventually(lambda: tails.count == 1, 60), "the browser does not come"
        ids.append(tell("running"))
        for _ in range(2):
            ids.append(tell("progress"))
            told = tails.told
            stage.break_lines()
            assert eventually(lambda: tails.count == 0, 30)
            ids += [tell("progress"), tell("progress")]
            assert eventually(lambda before=told: tails.count == 1 and tails.told > before, 30)
        ids.append(tell("done"))
        assert eventually(lambda: stage.heard is not None, 60), "the browser does not stop at the end"
    finally:
        browser.terminate()
        browser.wait(20)
    assert stage.heard is not None
    seen = [(kind, event_id) for kind, event_id in stage.heard["told"] if kind != "hello"]
    assert [event_id for _, event_id in seen] == ids
    assert [kind for kind, _ in seen] == ["queued", "running", *["progress"] * 6, "done"]
    # connecting again after each break, and closed for good by the 204 after the end
    assert stage.heard["states"][-1] == 2
