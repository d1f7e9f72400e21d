"""Every page of the dashboard in a real browser: what it shows, what it changes, and that it follows."""

import json
import re
import signal
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import orjson
import pytest
import redis

from corral import Job
from tests.dashboard.conftest import QUEUES, Samples
from tests.gateway.conftest import OpenGateway
from tests.support.chromium import Chromium
from tests.support.gateway import Gateway
from tests.support.servers import start_valkey

AXE = Path(__file__).resolve().parents[2] / "node_modules/axe-core/axe.min.js"
WIDTHS = (390, 1280, 2560)
ROWS = "[...document.querySelectorAll('#page .rows tbody tr')]"


def open_page(browser: Chromium, gateway: Gateway, hash_: str, title: str) -> None:
    """Open a page, and wait for its heading."""
    browser.go(f"{gateway.url}/{hash_}")
    browser.until(f"document.querySelector('#page h1')?.textContent.includes({json.dumps(title)})")


def row(queue: str, protocol: str) -> str:
    """JavaScript for the texts of a queue's row by their columns."""
    key = orjson.dumps(f"{protocol}/{queue}").decode()
    return (
        f"((row) => row && Object.fromEntries([...row.cells].map((cell) =>"
        f" [cell.dataset.label, cell.textContent])))({ROWS}.find((row) => row.dataset.key === {key}))"
    )


def confirm(browser: Chromium, word: str = "") -> None:
    """Confirm the open dialog, with the word it asks for."""
    browser.until("!!document.querySelector('dialog[open]')")
    if word:
        assert browser.value("document.querySelector('dialog button[type=submit]').disabled")
        browser.fill("dialog input:not([type=checkbox]):not([type=number])", word)
    browser.click("dialog button[type=submit]")
    browser.until("!document.querySelector('dialog[open]')")


# -- queues -------------------------------------------------------------------------------------------------


def test_queues_of_every_protocol_are_shown_live(
    gateway: Gateway, samples: Samples, browser: Chromium
) -> None:
    samples.work(("bullmq", "mail", "send", {}))
    open_page(browser, gateway, "", "Queues")
    browser.until("document.getElementById('status').dataset.state === 'live'")
    samples.work(
        ("bullmq", "mail", "send", {"fail": "no"}),
        ("streams", "jobs", "embed", {}),
        ("bridgemq", "reports", "render", {}),
    )
    mail = browser.until(f"(({row('mail', 'bullmq')})?.Dead === '1') && {row('mail', 'bullmq')}")
    assert (mail["Completed"], mail["Waiting"]) == ("1", "0")
    jobs = browser.until(row("jobs", "streams"))
    assert jobs["Dead"] == "–", "what a contract does not count"
    assert browser.until(row("reports", "bridgemq"))["Completed"] == "1"
    browser.until(f"parseFloat(({row('mail', 'bullmq')})['Done/min']) > 0", 15)
    assert browser.value("document.querySelectorAll('.spark').length") == 3
    browser.fill("input[type=search]", "rep")
    assert browser.value(f"{ROWS}.length") == 1
    assert browser.value("location.hash") == "#/queues?filter=rep"
    browser.fill("input[type=search]", "")
    browser.click("th .sort", "Completed")
    browser.until("location.hash.includes('sort=completed')")

    def expect_a_worker() -> None:
        browser.until(f"({row('mail', 'bullmq')})?.Workers === '1'", 30)

    samples.while_working(expect_a_worker)
    assert browser.messages == [], "nothing was blocked, nothing went wrong"


def test_a_queue_is_paused_drained_and_filled(gateway: Gateway, samples: Samples, browser: Chromium) -> None:
    for number in range(3):
        samples.add("bullmq", "mail", "send", {"number": number})
    open_page(browser, gateway, "#/queue/bullmq/mail", "mail")
    browser.until(f"{ROWS}.length === 3")
    browser.click("button", "Pause")
    assert "3 jobs will wait" in browser.text("dialog")
    confirm(browser)
    browser.until("document.querySelector('#page .badge')?.textContent === 'paused'")
    browser.click("button", "Resume")
    browser.until("!document.querySelector('#page .badge')")
    browser.click("button", "Add job")
    browser.fill("dialog input", "send")
    browser.fill("dialog textarea", '{"number": 99}')
    confirm(browser)
    browser.until(f"{ROWS}.some((row) => row.textContent.includes('99'))")
    browser.click("button", "Limits")
    browser.fill("dialog input", "5")
    confirm(browser)
    browser.until("document.querySelector('.facts').textContent.includes('Concurrency5')")
    browser.click("button", "Drain")
    assert "4 waiting jobs" in browser.text("dialog")
    confirm(browser, "mail")
    browser.until("document.querySelector('.tab[aria-selected=true]').textContent === 'waiting0'")
    browser.click("button", "Reload")
    browser.until("!!document.querySelector('#page .empty')")


def test_what_a_protocol_lacks_is_absent_with_its_reason(
    gateway: Gateway, samples: Samples, browser: Chromium
) -> None:
    samples.add("streams", "jobs", "embed", {})
    open_page(browser, gateway, "#/queue/streams/jobs", "jobs")
    absent = browser.value(
        "Object.fromEntries([...document.querySelectorAll('.absent')]"
        ".map((one) => [one.textContent, one.title]))"
    )
    assert absent["Pause"] == "protocol 'streams' has no pause; stop its workers instead"
    assert {"Pause", "Retry dead", "Replay dead", "Limits", "Obliterate"} <= absent.keys()
    assert not browser.value(
        "[...document.querySelectorAll('button')].some((one) => one.textContent === 'Pause')"
    )


@pytest.mark.parametrize(("protocol", "queue", "name"), QUEUES)
def test_the_actions_of_a_queue_are_on_the_page_of_all_queues(
    gateway: Gateway, samples: Samples, browser: Chromium, protocol: str, queue: str, name: str
) -> None:
    samples.add(protocol, queue, name, {})
    open_page(browser, gateway, "", "Queues")
    browser.until(row(queue, protocol))
    browser.click(f"button[aria-label='Actions of {queue}']")
    browser.until("!!document.querySelector('dialog[open]')")
    texts = browser.value("[...document.querySelectorAll('dialog .tools > *')].map((one) => one.textContent)")
    assert texts == [
        "Add job",
        "Pause",
        "Retry dead",
        "Replay dead",
        "Drain",
        "Clean",
        "Limits",
        "Obliterate",
    ]
    reasons = browser.value("[...document.querySelectorAll('dialog .absent')].map((one) => one.title)")
    assert all(reasons), "what is not possible says why"
    if protocol == "streams":
        return
    browser.click("dialog .tools button", "Pause")
    browser.until("document.querySelectorAll('dialog[open]').length === 2")
    browser.value(
        "void [...document.querySelectorAll('dialog')].pop().querySelector('[type=submit]').click()"
    )
    browser.until("!document.querySelector('dialog[open]')")
    browser.until(f"({row(queue, protocol)}).Queue.includes('paused')")


@pytest.mark.parametrize(("protocol", "queue", "name"), QUEUES)
def test_more_jobs_are_shown_behind_the_last_whatever_moved(
    gateway: Gateway, samples: Samples, browser: Chromium, protocol: str, queue: str, name: str
) -> None:
    target = samples.app.queue(queue, protocol)
    ids = samples.app.sync(target.add_many([(name, {"n": n}) for n in range(60)]))
    open_page(browser, gateway, f"#/queue/{protocol}/{queue}?state=waiting", queue)
    browser.until(f"{ROWS}.length === 50")
    samples.app.sync(target.cancel(ids[10:52]))
    browser.click(".more button")
    browser.until(f"{ROWS}.length > 50")
    assert browser.value(f"{ROWS}.map((row) => row.dataset.key)") == ids[:50] + ids[52:]


@pytest.mark.parametrize(("protocol", "queue", "name"), [QUEUES[0], QUEUES[2]])
def test_rows_are_selected_and_changed_together(
    gateway: Gateway, samples: Samples, browser: Chromium, protocol: str, queue: str, name: str
) -> None:
    samples.work(*((protocol, queue, name, {"fail": f"no {n}"}) for n in range(4)))
    open_page(browser, gateway, f"#/queue/{protocol}/{queue}?state=dead", queue)
    browser.until(f"{ROWS}.length === 4")
    for _ in range(2):
        browser.press("j")
        browser.press("x")
    browser.until("document.querySelector('.picked')?.textContent.includes('2 selected')")
    browser.click(".picked button", "replay")
    assert "2 selected jobs" in browser.text("dialog")
    confirm(browser)
    browser.until("document.querySelector('.toast')?.textContent.includes('2 done')")
    browser.until(f"{ROWS}.length === 2")
    browser.click("thead input[type=checkbox]")
    browser.click(".picked button", "remove")
    confirm(browser, queue)
    browser.until("!!document.querySelector('#page .empty')")


# -- one job ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("protocol", "queue", "name"), QUEUES)
def test_a_job_is_shown_with_all_there_is(
    gateway: Gateway, samples: Samples, browser: Chromium, protocol: str, queue: str, name: str
) -> None:
    data = {"to": {"name": "Ada"}, "result": {"sent": True}, "log": "handed over"}
    [job_id] = samples.work((protocol, queue, name, data))
    open_page(browser, gateway, f"#/job/{protocol}/{queue}/{job_id}", name)
    text = browser.text("#page")
    # the BridgeMQ document keeps no data of a completed job
    kept = () if protocol == "bridgemq" else ('"Ada"',)
    for part in (*kept, "completed", "sent: true", "handed over", "attempt 1", "Added", job_id):
        assert part in text, part
    assert f"corral job show {queue} {job_id} --protocol {protocol}" in text
    assert browser.value("document.querySelectorAll('.timeline .span').length") >= 2
    assert browser.value(f"{ROWS}.length") >= 3, "its events"


@pytest.mark.parametrize(("protocol", "queue", "name"), QUEUES)
def test_every_attempt_is_told_after_the_events_are_gone(
    gateway: Gateway, samples: Samples, client: redis.Redis, browser: Chromium,
    protocol: str, queue: str, name: str,
) -> None:  # fmt: skip
    [job_id] = samples.work((protocol, queue, name, {"flaky": "the first attempt fails"}))
    for key in client.keys("*events*"):
        client.delete(key)
    open_page(browser, gateway, f"#/job/{protocol}/{queue}/{job_id}", name)
    rows = browser.value("[...document.querySelectorAll('.timeline li')].map((one) => one.innerText)")
    text = "\n".join(rows)
    # the streams contract has no second attempt
    count = 1 if protocol == "streams" else 2
    assert [row.split()[0] for row in rows] == ["waited", "attempt"] * count, text
    assert "attempt 1 by mailer-1" in text
    assert "ConnectionError: the first attempt fails" in text


def test_a_job_is_followed_and_changed(gateway: Gateway, samples: Samples, browser: Chromium) -> None:
    job_id = samples.add("bullmq", "mail", "send", {"n": 1}, delay=600_000)
    open_page(browser, gateway, f"#/job/bullmq/mail/{job_id}", "send")
    browser.click("button", "Edit")
    browser.fill("dialog textarea", '{"n": 2}')
    confirm(browser)
    browser.until("document.querySelector('.json').textContent.includes('n: 2')")
    browser.click("button", "Promote")
    confirm(browser)
    browser.until("document.querySelector('.state').textContent === 'waiting'")
    samples.work(("bullmq", "mail", "send", {}))
    browser.until("document.querySelector('.state').textContent === 'completed'")
    browser.click("button", "Duplicate")
    confirm(browser)
    browser.until(f"location.hash !== '#/job/bullmq/mail/{job_id}'")
    browser.until("document.querySelector('.state')?.textContent === 'waiting'")
    browser.click("button", "Remove")
    confirm(browser)
    browser.until("location.hash === '#/queue/bullmq/mail'")


# -- search, dead letters, bulk -----------------------------------------------------------------------------


def test_jobs_are_searched_and_what_matches_is_changed(
    gateway: Gateway, samples: Samples, browser: Chromium
) -> None:
    for number in range(20):
        samples.add("bullmq", "mail", "send", {"user": {"id": number}})
    samples.add("bridgemq", "reports", "render", {"user": {"id": 17}})
    samples.add("streams", "jobs", "embed", {"user": {"id": 17}})
    open_page(browser, gateway, f"#/search?q={quote('data.user.id = 17')}", "Search")
    browser.until(f"{ROWS}.length === 3")
    browser.until("document.querySelector('.search-progress').textContent.includes('3 matches')")
    browser.fill("input[type=search]", "data.user.id >")
    browser.click(".search-form button")
    browser.until("document.querySelector('#page .field-error').textContent.includes('is not a condition')")
    open_page(browser, gateway, f"#/search?queue=bullmq/mail&q={quote('data.user.id < 5')}", "Search")
    browser.click("button", "remove all that match")
    browser.until("document.querySelector('dialog h2')?.textContent === 'remove 5 jobs of mail'")
    confirm(browser, "mail")
    browser.until("document.querySelector('#page h1')?.textContent === 'Bulk changes'")
    browser.until(f"{ROWS}[0]?.textContent.includes('completed')")
    assert browser.value(f"{ROWS}[0].cells[4].textContent") == "5"


def test_dead_letters_are_grouped_and_discarded(
    gateway: Gateway, samples: Samples, browser: Chromium
) -> None:
    jobs: list[tuple[str, str, str, Any]] = [
        *(("bullmq", "mail", "send", {"fail": f"550 no mailbox user{n}@x.org"}) for n in range(3)),
        ("bridgemq", "reports", "render", {"fail": "no paper"}),
    ]
    samples.work(*jobs)
    open_page(browser, gateway, "#/dead", "Dead letters")
    assert browser.value("document.querySelectorAll('.group').length") == 2
    assert "no mailbox …" in browser.text(".group")
    browser.click(".group button", "Discard")
    browser.until("document.querySelector('dialog h2')?.textContent === 'remove 3 jobs of mail'")
    confirm(browser, "mail")
    browser.until("document.querySelector('#page h1')?.textContent === 'Bulk changes'")
    browser.until(f"{ROWS}[0]?.textContent.includes('completed')")
    open_page(browser, gateway, "#/dead", "Dead letters")
    browser.until("document.querySelectorAll('.group').length === 1")


# -- schedules, flows, workers, server, audit ---------------------------------------------------------------


def test_schedules_are_added_run_and_removed(gateway: Gateway, samples: Samples, browser: Chromium) -> None:
    samples.add("bridgemq", "reports", "render", {})
    path = "/v1/queues/bridgemq/reports/schedules/nightly"
    gateway.client.put(path, json={"name": "render", "cron": "0 3 * * *", "timezone": "Asia/Tokyo"})
    open_page(browser, gateway, "#/schedules", "Schedules")
    browser.until(f"{ROWS}[0]?.textContent.includes('0 3 * * * (Asia/Tokyo)')")
    browser.click("button", "nightly")
    assert browser.value("document.querySelectorAll('dialog tbody tr').length") == 10
    titles = browser.value("[...document.querySelectorAll('dialog thead th')].map((one) => one.textContent)")
    assert titles == ["In", "Your time", "Asia/Tokyo"]
    assert "3:00" in browser.value("document.querySelector('dialog tbody tr').cells[2].textContent")
    assert browser.value("document.querySelectorAll('.marks .mark').length") == 10
    browser.click("dialog button", "Close")
    browser.click("button", "Run now")
    browser.until("document.querySelector('.toast')?.textContent.includes('was added')")
    browser.click("button", "Pause")
    browser.until(f"{ROWS}[0]?.textContent.includes('paused')")
    browser.click("button", "Remove")
    confirm(browser, "nightly")
    browser.until("!!document.querySelector('#page .empty')")


@pytest.mark.parametrize(("protocol", "queue"), [("bullmq", "mail"), ("bridgemq", "reports")])
def test_past_firings_are_marks_that_lead_to_their_jobs(
    gateway: Gateway, samples: Samples, browser: Chromium, protocol: str, queue: str
) -> None:
    target, now = samples.app.queue(queue, protocol), samples.app.clock()
    name = {one[0]: one[2] for one in QUEUES}[protocol]
    schedule = {"name": name, "cron": "0 0 * * *", "timezone": "UTC"}
    samples.add(protocol, queue, name, {})
    gateway.client.put(f"/v1/queues/{protocol}/{queue}/schedules/daily", json=schedule)
    fired = target.schedules.firing_id("daily", now - now % 86_400_000)
    job = Job(name=name, data={}, queue=queue, id=fired, options=target.options({}), created_at=now)
    samples.app.sync(target.ports.broker.submit([job]))
    open_page(browser, gateway, "#/schedules", "Schedules")
    browser.click(".marks a")
    browser.until(f"location.hash.startsWith('#/job/{protocol}/{queue}/')")
    browser.until(f"document.querySelector('#page .facts')?.textContent.includes({json.dumps(fired)})")


def test_a_job_is_added_by_the_schema_that_workers_tell(
    gateway: Gateway, samples: Samples, browser: Chromium
) -> None:
    @samples.app.job("invite", queue="mail")
    async def invite(to: str, count: int = 3) -> None:
        return

    def look() -> None:
        open_page(browser, gateway, "#/queue/bullmq/mail", "mail")
        browser.until("fetch('v1/queues/bullmq/mail/workers').then((one) => one.text())"
                      ".then((text) => text.includes('invite'))")  # fmt: skip
        browser.click("button", "Add job")
        browser.fill("dialog input", "invite")
        assert json.loads(browser.value("document.querySelector('dialog textarea').value")) == {"to": ""}
        browser.fill("dialog textarea", '{"count": "many"}')
        problem = browser.text("dialog .field-error")
        assert "data.to is missing" in problem
        assert "data.count must be integer" in problem
        browser.fill("dialog textarea", '{"to": "ada"}')
        assert browser.text("dialog .field-error") == ""
        confirm(browser)
        browser.until("document.querySelector('.toast')?.textContent.includes('was added')")

    samples.add("bullmq", "mail", "other", {})
    samples.while_working(look)


def test_a_flow_is_drawn_as_a_tree(gateway: Gateway, samples: Samples, browser: Chromium) -> None:
    parent = samples.add_flow()
    open_page(browser, gateway, "#/flows", "Flows")
    browser.click("#page tbody a", parent)
    browser.until("document.querySelectorAll('.flow-node').length === 4")
    assert browser.value("document.querySelectorAll('.flow-edge.is-open').length") == 3
    assert browser.text(".heading .tools").split() == ["waiting", "4"]


def test_workers_server_and_audit_log(gateway: Gateway, samples: Samples, browser: Chromium) -> None:
    gateway.client.post("/v1/queues/bullmq/mail/jobs", json={"name": "other"})
    gateway.client.post("/v1/queues/bullmq/mail/pause")

    def look() -> None:
        open_page(browser, gateway, "#/workers", "Workers")
        browser.until(f"{ROWS}.some((row) => row.textContent.includes('mailer-1'))")

    samples.while_working(look)
    open_page(browser, gateway, "#/server", "Server")
    assert "eviction" in browser.text(".findings")
    open_page(browser, gateway, "#/audit", "Audit log")
    browser.until(f"{ROWS}[0]?.textContent.includes('pauseQueue')")


# -- the frame ----------------------------------------------------------------------------------------------


def test_keys_walk_search_and_help(gateway: Gateway, samples: Samples, browser: Chromium) -> None:
    samples.add("bullmq", "mail", "send", {})
    open_page(browser, gateway, "#/queues", "Queues")
    browser.until(f"{ROWS}.length === 2")
    browser.press("j")
    browser.press("j")
    assert browser.value("document.querySelector('tr.is-current').dataset.key") == "streams/jobs"
    browser.press("k")
    assert browser.value("document.querySelector('tr.is-current').dataset.key") == "bullmq/mail"
    browser.press("Enter")
    browser.until("location.hash === '#/queue/bullmq/mail'")
    browser.value("history.back()")
    browser.until("document.querySelector('#page h1')?.textContent === 'Queues'")
    browser.press("/")
    assert browser.value("document.activeElement.type") == "search"
    browser.value("document.activeElement.blur()")
    browser.press("?")
    browser.until("document.querySelector('dialog h2')?.textContent === 'Keyboard'")
    browser.click("dialog button")
    browser.press("g")
    browser.press("w")
    browser.until("location.hash === '#/workers'")


def test_an_outage_is_shown_and_gone_when_it_is_over(open_gateway: OpenGateway, browser: Chromium) -> None:
    frozen = start_valkey()
    state = "document.getElementById('status').dataset.state"
    try:
        browser.go(open_gateway(redis_url=frozen.url, redis_timeout_s=0.5).url)
        browser.until(f"{state} === 'live' && {row('jobs', 'streams')}")
        frozen.process.send_signal(signal.SIGSTOP)
        browser.until(f"{state} === 'lost'")
        assert browser.value(row("jobs", "streams")), "what was known stays to be seen"
        frozen.process.send_signal(signal.SIGCONT)
        browser.until(f"{state} === 'live'")
    finally:
        browser.go("about:blank")
        frozen.stop()


def test_the_page_is_light_or_dark_as_one_likes(gateway: Gateway, browser: Chromium) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    open_page(browser, gateway, "", "Queues")
    found = {}
    for theme in ("light", "dark"):
        browser.prefer(theme)
        found[theme] = browser.value(ground)
    assert found["light"] != found["dark"]
    browser.value("document.getElementById('theme').click()")
    assert browser.value(ground) == found["light"], "chosen, whatever the system says"
    label = browser.value("document.getElementById('theme').getAttribute('aria-label')")
    assert label == "Colour scheme: Light"
    browser.value("localStorage.clear()")


def accessibility_findings(browser: Chromium) -> list[tuple[str, ...]]:
    """What axe says against the page: all rules once, and colours, which alone differ, in both themes."""
    rules: dict[Literal["light", "dark"], str] = {
        "light": "['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa']",
        "dark": "{type: 'rule', values: ['color-contrast']}",
    }
    findings: list[tuple[str, ...]] = []
    browser.resize(1280)
    browser.value(f"{AXE.read_text()}; void 0")
    for theme, rule in rules.items():
        browser.prefer(theme)
        violations = "(found) => found.violations.map((one) => [one.id, one.nodes[0].html])"
        result = browser.value(f"axe.run(document, {{runOnly: {rule}}}).then({violations})")
        findings += [(theme, name, re.sub(r"\s+", " ", node)[:200]) for name, node in result]
    browser.prefer("light")
    return findings


@pytest.mark.skipif(not AXE.is_file(), reason="axe-core is not installed")
def test_every_page_is_accessible_and_never_wider_than_the_window(
    gateway: Gateway, samples: Samples, browser: Chromium
) -> None:
    jobs: list[tuple[str, str, str, Any]] = [
        ("bullmq", "mail", "send", {"log": "a line"}),
        ("bullmq", "mail", "send", {"fail": "no " * 300}),
    ]
    done, dead = samples.work(*jobs)
    flow = samples.add_flow("x" * 500)
    samples.add("bridgemq", "reports", "render", {})
    gateway.client.put(
        "/v1/queues/bridgemq/reports/schedules/nightly", json={"name": "render", "cron": "0 3 * * *"}
    )
    gateway.client.post("/v1/queues/bullmq/mail/tasks", json={"verb": "retry"})
    pages = {
        "": "Queues",
        "#/queue/bullmq/mail?state=completed": "mail",
        f"#/job/bullmq/mail/{done}": "send",
        f"#/job/bullmq/mail/{dead}": "send",
        "#/search?q=state+%3D+completed": "Search",
        "#/dead": "Dead letters",
        "#/schedules": "Schedules",
        "#/workers": "Workers",
        "#/flows": "Flows",
        f"#/flow/bullmq/mail/{flow}": "Flow of",
        "#/tasks": "Bulk changes",
        "#/server": "Server",
        "#/audit": "Audit log",
        "#/history": "History",
    }
    findings: list[tuple[Any, ...]] = []
    for hash_, title in pages.items():
        browser.go("about:blank")
        open_page(browser, gateway, hash_, title)
        for width in WIDTHS:
            browser.resize(width)
            wider = browser.value("document.documentElement.scrollWidth - innerWidth")
            if wider > 0:
                findings.append((title, width, f"{wider} pixels wider than the window"))
        findings += [(title, *one) for one in accessibility_findings(browser)]
    assert findings == []
