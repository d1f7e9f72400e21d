"""Pictures of every page of the dashboard, in both themes and three widths."""

import asyncio
import shutil
import sys
from pathlib import Path
from threading import Thread
from typing import Any

import httpx2

from corral.cli.demo.keep import keep
from corral.cli.demo.steps import DemoOutput
from corral.store.embedded import EmbeddedServer
from tests.support.chromium import Chromium

WIDTHS = {390: 844, 1280: 860, 2560: 1300}
WORKED_S = 45.0
"""How long the demo works before the pictures are taken."""
IMAGES = {
    "queues-light-1280": "dashboard.png",
    "job-light-1280": "dashboard-job.png",
    "dead-dark-1280": "dashboard-dead.png",
    "history-light-1280": "dashboard-history.png",
}
"""The pictures that the documentation uses, and their names there."""


class Addresses(DemoOutput):
    """Keeps the addresses that the demo prints."""

    def __init__(self) -> None:
        super().__init__(as_json=False)
        self.dashboard = ""

    def document(self, document: Any) -> None:
        self.dashboard = document.get("dashboard", self.dashboard)

    def line(self, *words: Any) -> None:
        """Print nothing."""


def pages_of(url: str) -> dict[str, str]:
    """Return the address of every page by its name."""
    queues = f"{url}v1/queues/bullmq"
    done = httpx2.get(f"{queues}/imports/jobs?state=completed&limit=1").json()["jobs"][0]["id"]
    dead = httpx2.get(f"{queues}/mail/jobs?state=dead&limit=1").json()["jobs"][0]["id"]
    parents = httpx2.get(f"{queues}/mail/flows").json()["jobs"]
    pages = {
        "queues": "#/queues",
        "queue": "#/queue/bullmq/mail?state=dead",
        "job": f"#/job/bullmq/imports/{done}",
        "dead-job": f"#/job/bullmq/mail/{dead}",
        "history": "#/history",
        "search": "#/search?q=state+%3D+dead",
        "dead": "#/dead",
        "schedules": "#/schedules",
        "workers": "#/workers",
        "flows": "#/flows",
        "tasks": "#/tasks",
        "server": "#/server",
        "audit": "#/audit",
    }
    if parents:
        pages["flow"] = f"#/flow/bullmq/mail/{parents[0]['id']}"
    return {name: url + page for name, page in pages.items()}


def take(browser: Chromium, folder: Path, name: str, address: str) -> None:
    """Take the pictures of one page."""
    for theme in ("light", "dark"):
        browser.prefer(theme)
        for width, height in WIDTHS.items():
            browser.resize(width, height)
            browser.go("about:blank")
            browser.go(address)
            live = "document.getElementById('status').dataset.state === 'live'"
            browser.until(f"document.querySelector('#page h1') && {live}")
            browser.value("new Promise((done) => { setTimeout(done, 1200); })")
            browser.picture(folder / f"{name}-{theme}-{width}.png")


async def run_demo(url: str, output: Addresses) -> None:
    await keep(url, output)


def main(folder: Path, names: list[str]) -> None:
    """Take the pictures of these pages; of all where none is named."""
    folder.mkdir(parents=True, exist_ok=True)
    output = Addresses()
    with EmbeddedServer(temporary=True) as server:
        demo = Thread(target=lambda: asyncio.run(run_demo(server.url, output)), daemon=True)
        demo.start()
        demo.join(WORKED_S)
        replay = {"verb": "replay", "query": "reason ~ template"}
        httpx2.post(f"{output.dashboard}v1/queues/bullmq/mail/tasks", json=replay)
        with Chromium() as browser:
            for name, address in pages_of(output.dashboard).items():
                if not names or name in names:
                    take(browser, folder, name, address)
                    print(name)
        for name, image in IMAGES.items():
            if (picture := folder / f"{name}.png").exists():
                shutil.copy(picture, Path("docs/images") / image)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
