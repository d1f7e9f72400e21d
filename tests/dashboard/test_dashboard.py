"""The dashboard: what its files may do, and what a real browser makes of them."""

import asyncio
import re
import signal
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import orjson
import pytest
import redis

from corral import Corral, Unrecoverable
from corral.gateway.dashboard import FILES
from tests.gateway.conftest import OpenGateway
from tests.support.apps import ended, working
from tests.support.chromium import CHROMIUM, Chromium
from tests.support.gateway import KEYS, KEYS_JSON, Gateway
from tests.support.polling import eventually
from tests.support.servers import Server, start_valkey

HOSTILE = "<img src=x onerror=alert(1)>\u202e\x1b[2J&amp;<script>alert(2)</script>"
STATIC = Path(__file__).resolve().parents[2] / "src/corral/gateway/dashboard"

needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")

# -- the files ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", FILES)
def test_the_files_are_served_under_a_strict_policy(gateway: Gateway, path: str) -> None:
    response = gateway.client.get(path)
    assert (response.status_code, response.headers["content-type"]) == (200, FILES[path][1])
    policy = dict(
        part.strip().partition(" ")[::2] for part in response.headers["content-security-policy"].split(";")
    )
    assert policy["default-src"] == policy["trusted-types"] == policy["base-uri"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["form-action"] == "'none'"
    assert "unsafe" not in response.headers["content-security-policy"]
    assert response.headers["x-content-type-options"] == "nosniff"
    assert gateway.client.head(path).status_code == 200


class Tags(HTMLParser):
    """Every tag with its attributes, and text inside script and style."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inline: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] in ("script", "style") and data.strip():
            self.inline.append(data)


def test_the_page_has_nothing_inline_and_nothing_from_elsewhere() -> None:
    page = Tags()
    page.feed((STATIC / "index.html").read_text())
    assert page.inline == []
    for tag, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on") or name == "style"], tag
        for name in ("src", "href"):
            link = attributes.get(name)
            assert link is None or link.startswith("#") or link in FILES
    assert all(attributes.get("alt") is not None for tag, attributes in page.tags if tag == "img")


def test_the_script_has_no_word_that_turns_text_into_markup() -> None:
    script = (STATIC / "dashboard.js").read_text()
    banned = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|localStorage|cookie"
    assert re.findall(banned, script) == []


def test_a_key_is_needed_for_the_data_and_none_for_the_page(open_gateway: OpenGateway) -> None:
    gateway = open_gateway(keys=KEYS_JSON)
    assert gateway.client.get("/").status_code == 200
    assert gateway.client.get("/static/dashboard.js").status_code == 200
    assert gateway.client.get("/v1/queues").status_code == 401
    assert gateway.client.get("/static/../v1/queues").status_code == 401
    assert gateway.client.get("/static/other.js").status_code in (401, 404)


# -- in a browser -------------------------------------------------------------------------------------------


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Chromium]:
    with Chromium(tmp_path / "profile") as browser:
        yield browser


class Farm:
    """Jobs in every protocol."""

    def __init__(self, url: str) -> None:
        self.app = Corral(url)
        for protocol, queue, name in (("bullmq", "mail", "send"), ("streams", "jobs", "embed"),
                                  ("bridgemq", "reports", "render")):  # fmt: skip

            @self.app.job(name, queue=queue, protocol=protocol)
            async def work(job: Any) -> None:
                if "fail" in job.data:
                    raise Unrecoverable(job.data["fail"])

    def work(self, *jobs: tuple[str, str, str, Any]) -> None:
        """Add (protocol, queue, name, data) and have them done."""

        async def until_all_have_ended() -> None:
            async with working(self.app, name="bessie"):
                for protocol, queue, name, data in jobs:
                    target = self.app.queue(queue, protocol)
                    await ended(target, (await target.add(name, data)).id)

        self.app.sync(until_all_have_ended())

    def close(self) -> None:
        self.app.sync(self.app.close())
        self.app.sync.close()


@pytest.fixture
def farm(server: Server) -> Iterator[Farm]:
    farm = Farm(server.url)
    yield farm
    farm.close()


def row(queue: str, protocol: str) -> str:
    """JavaScript for the cells of a queue's row."""
    wanted = orjson.dumps([queue, protocol]).decode()
    return (
        "(() => { for (const row of document.querySelectorAll('#rows tr')) {"
        " const cells = [...row.cells].map((cell) => cell.textContent);"
        f" if (cells[0].startsWith({wanted}[0]) && cells[1] === {wanted}[1]) return cells;"
        " } return null; })()"
    )


@needs_browser
def test_every_queue_is_shown_live_and_every_name_as_text(
    gateway: Gateway, farm: Farm, client: redis.Redis, browser: Chromium, tmp_path: Path
) -> None:
    farm.work(("bullmq", "mail", "send", {}))
    client.hset(f"bull:{HOSTILE}:meta", "paused", "1")
    browser.go(gateway.url)
    browser.until(row("mail", "bullmq"))
    cells = browser.until(row(HOSTILE, "bullmq"))
    assert cells[0] == f"{HOSTILE}paused", "the hostile name is text, whole"
    assert browser.until("document.getElementById('status').dataset.state === 'live'")
    farm.work(
        ("bullmq", "mail", "send", {"fail": HOSTILE}),
        ("streams", "jobs", "embed", {"fail": "no such model"}),
        ("bridgemq", "reports", "render", {}),
    )
    # counts and rates come by themselves
    mail = browser.until(f"({row('mail', 'bullmq')})?.[6] === '1' && {row('mail', 'bullmq')}")
    assert mail[5] == "1", "one completed"
    assert browser.until(f"parseFloat(({row('mail', 'bullmq')})[10]) > 0"), "failures in a second"
    assert browser.until(f"parseFloat(({row('reports', 'bridgemq')})?.[9]) > 0"), "done in a second"
    assert browser.until(row("jobs", "streams"))[6] == "–", "what a contract does not count"
    reasons = "[...document.querySelectorAll('.dead-jobs .reason')].map((reason) => reason.textContent)"
    browser.until(f"{reasons}.length === 2")
    assert browser.value(reasons) == ["no such model", HOSTILE], "the last to die first"
    assert browser.value("document.querySelectorAll('#rows img, #rows script, .dead-jobs img').length") == 0
    assert browser.value("document.getElementById('sum-dead').textContent") == "1"
    assert browser.messages == [], "nothing was blocked, nothing went wrong"
    picture = tmp_path / "dashboard.png"
    browser.picture(picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
    # and what should be blocked is
    browser.value("void document.body.append(Object.assign(new Image(), {src: 'http://127.0.0.1:1/x'}))")
    assert eventually(lambda: browser.value("1") and browser.messages)
    assert "Content Security Policy" in str(browser.messages)


@needs_browser
def test_workers_are_counted_while_they_are_alive(gateway: Gateway, farm: Farm, browser: Chromium) -> None:
    farm.work(("bullmq", "mail", "send", {}))
    browser.go(gateway.url)

    shown = (f"({row('mail', 'bullmq')})?.[7]", "document.getElementById('sum-workers').textContent")

    def expect_both_to_show(count: str) -> None:
        for one in shown:
            browser.until(f"{one} === '{count}'")

    async def look_while_one_works() -> None:
        async with working(farm.app, queues=["mail"], protocol="bullmq", name="bessie"):
            await asyncio.to_thread(expect_both_to_show, "1")

    expect_both_to_show("0")
    farm.app.sync(look_while_one_works())
    expect_both_to_show("0")


@needs_browser
def test_a_key_is_asked_for_and_kept_only_in_the_tab(
    open_gateway: OpenGateway, farm: Farm, browser: Chromium
) -> None:
    farm.work(("bullmq", "mail", "send", {}))
    gateway = open_gateway(keys=KEYS_JSON)
    browser.go(gateway.url)
    browser.until("!document.getElementById('key-form').hidden")
    assert "mail" not in browser.text("body")
    give = (
        "((key) => { document.getElementById('key').value = key;"
        " document.getElementById('key-form').requestSubmit(); })"
    )
    browser.value(f"{give}('a guess of somebody')")
    browser.until("document.getElementById('notice').textContent.includes('this key is not known')")
    assert browser.value("sessionStorage.getItem('corral.key')") is None
    browser.value(f"{give}('{KEYS['submit']}')")
    browser.until("document.getElementById('notice').textContent.includes('needs the role')")
    browser.value("document.getElementById('forget-key').click()")
    browser.value(f"{give}('{KEYS['read']}')")
    browser.until(row("mail", "bullmq"))
    browser.until("document.getElementById('status').dataset.state === 'live'")
    kept = browser.value("[Object.keys(sessionStorage).join(), localStorage.length, document.cookie]")
    assert kept == ["corral.key", 0, ""]
    browser.value("document.getElementById('forget-key').click()")
    assert browser.value("[sessionStorage.length, document.querySelectorAll('#rows tr').length]") == [0, 0]
    assert "mail" not in browser.text("body")


@needs_browser
def test_an_outage_is_shown_and_gone_when_it_is_over(open_gateway: OpenGateway, browser: Chromium) -> None:
    frozen = start_valkey()
    state = "document.getElementById('status').dataset.state"
    try:
        browser.go(open_gateway(redis_url=frozen.url, redis_timeout_s=0.5).url)
        browser.until(f"{state} === 'live' && {row('jobs', 'streams')}")
        frozen.process.send_signal(signal.SIGSTOP)
        browser.until(f"{state} === 'lost'")
        assert browser.text("#notice") != ""
        assert browser.value(row("jobs", "streams")), "what was known stays to be seen"
        frozen.process.send_signal(signal.SIGCONT)
        browser.until(f"{state} === 'live' && document.getElementById('notice').hidden")
    finally:
        frozen.stop()


@needs_browser
def test_the_page_is_light_or_dark_as_one_likes(gateway: Gateway, browser: Chromium) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    browser.go(gateway.url)
    browser.until(row("jobs", "streams"))
    browser.value("(() => { const filter = document.getElementById('filter'); filter.value = 'mail';"
                  " filter.dispatchEvent(new Event('input')); })()")  # fmt: skip
    assert browser.text("#unmatched") == "No queue matches the filter."
    found = {}
    for theme in ("light", "dark"):
        features = [{"name": "prefers-color-scheme", "value": theme}]
        browser.call("Emulation.setEmulatedMedia", features=features)
        found[theme] = browser.value(ground)
    assert found["light"] != found["dark"]
    browser.value("document.getElementById('theme').click()")
    assert browser.value(ground) == found["light"], "chosen, whatever the system says"
    label = browser.value("document.getElementById('theme').getAttribute('aria-label')")
    assert label == "Colour scheme: light"
