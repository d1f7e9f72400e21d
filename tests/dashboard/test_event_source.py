"""EventSource in headless Chromium: a browser follows a job, loses its connection and resumes."""

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

from corral.gateway import GatewaySettings, create_app
from tests.support.gateway import Gateway, emit
from tests.support.polling import eventually
from tests.support.servers import Server

CHROMIUM = shutil.which("chromium")

PAGE = """<!doctype html><title>tail</title><pre id=out></pre><script>
const events = [], states = [];
const source = new EventSource("/v1/jobs/JOB/events");
const keep = (event) => {
  // a job's last event may be of type `error`; the browser's own `error` has no data
  if (event.data === undefined) { states.push(source.readyState); return; }
  events.push([event.type, event.lastEventId]);
};
for (const type of ["hello", "queued", "running", "progress", "done", "error", "gateway.stop"])
  source.addEventListener(type, keep);
const watch = setInterval(() => {
  // after the end the gateway responds with 204, at which a browser stops
  if (source.readyState !== EventSource.CLOSED) return;
  clearInterval(watch);
  document.getElementById("out").textContent = JSON.stringify({events, states});
  fetch("/seen", {method: "POST", body: document.getElementById("out").textContent});
}, 20);
</script>"""

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")


class LossyPage:
    """A gateway that also serves a page, which reports the events it has received."""

    def __init__(self, url: str) -> None:
        self.report: dict[str, Any] | None = None
        settings = {"sweep_s": 0.05, "retry_ms": 100, "redis_timeout_s": 10}
        app = create_app(GatewaySettings(redis_url=url, **settings))
        app.add_route("/page/{job_id}", self._page)
        app.add_route("/seen", self._record, methods=["POST"])
        self.gateway = Gateway(url, app=app, **settings)

    async def _page(self, request: Request) -> HTMLResponse:
        # the gateway's own policy allows no inline script
        policy = {"Content-Security-Policy": "default-src 'self' 'unsafe-inline'"}
        return HTMLResponse(PAGE.replace("JOB", request.path_params["job_id"]), headers=policy)

    async def _record(self, request: Request) -> HTMLResponse:
        self.report = orjson.loads(await request.body())
        return HTMLResponse("")

    def reset_connections(self) -> None:
        """Abort every connection, as a network does."""
        loop = self.gateway.state._publishing.get_loop()
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
def page(server: Server) -> Iterator[LossyPage]:
    page = LossyPage(server.url)
    yield page
    page.gateway.stop()


def test_a_browser_follows_a_job_through_lost_connections_to_its_end(
    page: LossyPage, client: redis.Redis, tmp_path: Path
) -> None:
    job_id = page.gateway.submit()

    ids = [client.xrange(f"job:{job_id}:events")[0][0].decode()]
    tails = page.gateway.state.tails
    browser = browse(f"{page.gateway.url}/page/{job_id}", tmp_path)
    try:
        assert eventually(lambda: tails.count == 1, 60), "the browser does not connect"
        ids.append(emit(client, job_id, "running"))
        for _ in range(2):
            ids.append(emit(client, job_id, "progress"))
            sent = tails.sent
            page.reset_connections()
            assert eventually(lambda: tails.count == 0, 30)
            ids += [emit(client, job_id, "progress"), emit(client, job_id, "progress")]
            assert eventually(lambda before=sent: tails.count == 1 and tails.sent > before, 30)
        ids.append(emit(client, job_id, "done"))
        assert eventually(lambda: page.report is not None, 60), "the browser does not stop at the end"
    finally:
        browser.terminate()
        browser.wait(20)
    assert page.report is not None
    seen = [(kind, event_id) for kind, event_id in page.report["events"] if kind != "hello"]
    assert [event_id for _, event_id in seen] == ids
    assert [kind for kind, _ in seen] == ["queued", "running", *["progress"] * 6, "done"]
    # reconnected after each reset, and closed by the 204 after the end
    assert page.report["states"][-1] == 2
