"""Sign-in, roles and hostile text: nothing that somebody else wrote is ever run."""

import time
from pathlib import Path
from typing import Any, TypedDict

import orjson
import pytest
import redis

from corral.cli.demo.week import Attempt, write_week
from corral.gateway import GatewaySettings, create_app
from tests.dashboard.conftest import Samples
from tests.dashboard.test_pages import open_page
from tests.gateway.conftest import OpenGateway
from tests.support.chromium import Chromium
from tests.support.gateway import KEYS, KEYS_JSON, Gateway, bearer, problem_of
from tests.support.servers import Server

STATE = "document.getElementById('status').dataset.state"

# -- sessions -----------------------------------------------------------------------------------------------


def sign_in(browser: Chromium, key: str) -> None:
    browser.fill("#key", key)
    browser.click("#key-form button")


def test_a_key_signs_in_and_out_and_scripts_cannot_read_the_session(
    open_gateway: OpenGateway, samples: Samples, browser: Chromium
) -> None:
    samples.add("bullmq", "mail", "send", {})
    gateway = open_gateway(keys=KEYS_JSON)
    browser.go(gateway.url)
    sign_in(browser, "a guess of somebody")
    browser.until("document.getElementById('notice').textContent.includes('this key is not known')")
    assert "mail" not in browser.text("body")
    sign_in(browser, KEYS["submit"])
    browser.until("document.getElementById('notice').textContent.includes(\"lacks the role 'read'\")")
    sign_in(browser, KEYS["read"])
    browser.until(
        f"{STATE} === 'live' && document.querySelector('#page tbody')?.textContent.includes('mail')"
    )
    kept = browser.value("[document.cookie, sessionStorage.length, Object.keys(localStorage).join()]")
    assert kept == ["", 0, ""]
    [cookie] = browser.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["name"]) == (True, "Strict", "corral_session")
    browser.value("location.hash = '#/queue/bullmq/mail'")
    browser.until("document.querySelectorAll('.absent').length > 3")
    why = browser.value(
        "[...document.querySelectorAll('.absent')].find((one) => one.textContent === 'Pause').title"
    )
    assert why == "this needs the role 'operate', which your key lacks"
    browser.click("#sign-out")
    browser.until("!!document.getElementById('key-form')")
    assert "mail" not in browser.text("#page")
    assert browser.cookies() == []


def session_of(gateway: Gateway, role: str) -> tuple[dict[str, str], str]:
    """Return the headers of a new session, and its CSRF token."""
    response = gateway.client.post("/v1/session", json={"key": KEYS[role]})
    assert response.status_code == 200, response.text
    header = response.headers["set-cookie"]
    assert "HttpOnly" in header
    assert "SameSite=Strict" in header
    gateway.client.cookies.clear()
    return {"Cookie": header.partition(";")[0]}, response.json()["csrf"]


def test_a_session_needs_its_token_for_changes_and_ends(
    open_gateway: OpenGateway, client: redis.Redis
) -> None:
    gateway = open_gateway(keys=KEYS_JSON)
    cookie, token = session_of(gateway, "admin")
    get, post = gateway.client.get, gateway.client.post
    job = {"name": "send"}
    path = "/v1/queues/bullmq/mail/jobs"
    assert get("/v1/queues", headers=cookie).status_code == 200
    for wrong in ({}, {"X-CSRF-Token": "-"}, {"X-CSRF-Token": session_of(gateway, "admin")[1]}):
        assert problem_of(post(path, json=job, headers={**cookie, **wrong})) == (403, "csrf")
    origin = {"Origin": "https://evil.example", "X-CSRF-Token": token}
    assert problem_of(post(path, json=job, headers={**cookie, **origin})) == (403, "cross-origin")
    assert post(path, json=job, headers={**cookie, "X-CSRF-Token": token}).status_code == 201
    assert get("/v1/audit", headers=cookie).json()["entries"][0]["actor"] == "admin"
    stored = b" ".join([*client.keys("corral:session:*"), *map(client.get, client.keys("corral:session:*"))])
    assert cookie["Cookie"].partition("=")[2].encode() not in stored, "Redis knows only its digest"
    assert all(client.ttl(key) > 0 for key in client.keys("corral:session:*"))
    out = gateway.client.delete("/v1/session", headers={**cookie, "X-CSRF-Token": token})
    assert out.status_code == 200
    assert get("/v1/queues", headers=cookie).status_code == 401


def test_a_session_ends_with_its_key(open_gateway: OpenGateway) -> None:
    cookie, _ = session_of(open_gateway(keys=KEYS_JSON), "admin")
    others = KEYS_JSON.replace(KEYS["admin"], "another-key-of-the-tests")
    gateway = open_gateway(keys=others)
    assert gateway.client.get("/v1/queues", headers=cookie).status_code == 401


def test_a_read_only_gateway_refuses_every_change(open_gateway: OpenGateway) -> None:
    gateway = open_gateway(keys=KEYS_JSON, read_only=True)
    for method, path in CHANGES:
        response = gateway.client.request(method, path, headers=bearer("admin"))
        assert problem_of(response) == (403, "read-only"), path
    assert gateway.client.get("/v1/queues", headers=bearer("admin")).status_code == 200
    assert gateway.client.post("/v1/session", json={"key": KEYS["read"]}).json()["read_only"] is True


def test_a_proxy_may_name_the_user_from_trusted_addresses_only(open_gateway: OpenGateway) -> None:
    user = {"X-Forwarded-User": "ada"}
    trusted = open_gateway(keys=KEYS_JSON, trusted_proxies=("127.0.0.0/8",), forwarded_roles=("operate",))
    assert trusted.client.get("/v1/session", headers=user).json()["name"] == "ada"
    assert trusted.client.get("/v1/queues", headers=user).status_code == 200
    assert trusted.client.get("/v1/queues").status_code == 401
    trusted.client.post("/v1/queues/bullmq/mail/jobs", json={"name": "a"}, headers=bearer("submit"))
    path = "/v1/queues/bullmq/mail/pause"
    assert problem_of(trusted.client.post(path, headers=user)) == (403, "csrf")
    assert trusted.client.post(path, headers={**user, "X-CSRF-Token": "-"}).status_code == 200
    assert trusted.client.get("/v1/audit", headers=user).json()["entries"][0]["actor"] == "ada"
    assert trusted.client.post("/v1/jobs", headers={**user, "X-CSRF-Token": "-"}).status_code == 403
    other = open_gateway(keys=KEYS_JSON, trusted_proxies=("10.0.0.0/8",), forwarded_roles=("operate",))
    assert other.client.get("/v1/queues", headers=user).status_code == 401
    assert open_gateway(keys=KEYS_JSON).client.get("/v1/queues", headers=user).status_code == 401


# -- roles of every endpoint --------------------------------------------------------------------------------

OPEN = {"/livez", "/readyz", "/v1/session"}
SUBMIT = {
    ("POST", "/v1/jobs"),
    ("POST", "/v1/jobs/{job_id}/cancel"),
    ("POST", "/v1/queues/{protocol}/{queue}/jobs"),
}
ADMIN = {("POST", f"/v1/queues/{{protocol}}/{{queue}}/{verb}") for verb in ("obliterate", "drain", "clean")}
OPERATE_READS = {"/v1/audit", "/v1/tasks", "/v1/tasks/{task_id}"}
VALUES = {
    "protocol": "bullmq",
    "queue": "x",
    "job_id": "y",
    "verb": "retry",
    "schedule_id": "z",
    "task_id": "t",
}
document = create_app(GatewaySettings(redis_url="redis://127.0.0.1:1")).openapi()
ENDPOINTS = [(method.upper(), path) for path, methods in document["paths"].items() for method in methods]
CHANGES = [
    (method, path.format(**VALUES)) for method, path in ENDPOINTS if method != "GET" and path not in OPEN
]


def roles_of(method: str, path: str) -> set[str]:
    if (method, path) in SUBMIT:
        return {"submit", "admin"}
    if (method, path) in ADMIN:
        return {"admin"}
    if method != "GET" or path in OPERATE_READS:
        return {"operate", "admin"}
    return {"read", "operate", "admin"}


def test_every_endpoint_checks_its_role(open_gateway: OpenGateway) -> None:
    gateway = open_gateway(keys=KEYS_JSON)
    assert len(ENDPOINTS) > 40
    for method, path in ENDPOINTS:
        if path in OPEN or path in ("/v1/events", "/v1/activity", "/v1/jobs/{job_id}/events"):
            continue
        for role in KEYS:
            response = gateway.client.request(method, path.format(**VALUES), headers=bearer(role))
            if role in roles_of(method, path):
                assert response.status_code not in (401, 403), (method, path, role, response.text)
            else:
                assert problem_of(response) == (403, "forbidden"), (method, path, role)
        assert gateway.client.request(method, path.format(**VALUES)).status_code == 401, (method, path)


# -- hostile text -------------------------------------------------------------------------------------------

ATTACKS = (
    "<img src=x onerror=window.hit='{}'>",
    "<svg onload=window.hit='{}'>",
    "<script>window.hit='{}'</script>",
    "javascript:window.hit='{}'",
    "${{window.hit='{}'}}{{{{constructor.constructor(\"window.hit='{}'\")()}}}}",
    "\u202e\x1b[2J\x1b]0;{}\x07",
)


def canary(field: str) -> str:
    """A text with every attack, which leaves the name of its field where one of them runs."""
    return "\n".join(attack.replace("{}", field).replace("{{", "{").replace("}}", "}") for attack in ATTACKS)


def assert_nothing_ran(browser: Chromium, page: str) -> None:
    """Check that no attack has left its mark, an element or a link."""
    assert browser.value("window.hit ?? null") is None, page
    elements = "document.querySelectorAll('main img, main script, main iframe, dialog img, [onerror]').length"
    assert browser.value(elements) == 0, page
    links = browser.value("[...document.querySelectorAll('a')].map((one) => one.getAttribute('href'))")
    assert all(link.startswith("#") for link in links), links


def test_no_text_from_a_queue_is_run(
    gateway: Gateway, samples: Samples, client: redis.Redis, browser: Chromium
) -> None:
    ids = {}
    for protocol, queue, name in (("bullmq", "mail", "send"), ("bridgemq", "reports", "render")):
        data: dict[str, Any] = {
            canary("key"): canary("value"),
            "log": canary("log"),
            "result": canary("result"),
        }
        ids[protocol, queue] = samples.work(
            (protocol, queue, name, data),
            (protocol, queue, name, {"fail": canary("reason")}),
            (protocol, queue, name, {"flaky": canary("attempt")}),
            (protocol, queue, name, {"class": "<img src=x onerror=window.hit='class'>"}),
        )
        samples.app.sync(samples.app.queue(queue, protocol).add(canary("name")[:200].replace("\n", " "), {}))
    hostile = canary("queue").replace("\n", " ").replace(":", "")[:120]
    client.hset(f"bull:{hostile}:meta", "paused", "1")
    client.hset(
        "bull:mail:<b>id</b>", mapping={"name": canary("raw"), "data": "{}", "opts": "{}", "timestamp": "1"}
    )
    client.lpush("bull:mail:wait", "<b>id</b>")
    client.hset("bull:mail:repeat:x", mapping={"name": canary("schedule"), "pattern": "* * * * *"})
    gateway.client.put(
        "/v1/queues/bridgemq/reports/schedules/nightly",
        json={"name": "render", "data": {"x": canary("schedule")}, "cron": "0 3 * * *"},
    )
    flow = samples.add_flow("<img src=x onerror=window.hit='flow'>")
    pages = [
        "",
        "#/dead",
        "#/schedules",
        "#/flows",
        "#/workers",
        "#/audit",
        "#/server",
        f"#/flow/bullmq/mail/{flow}",
    ]
    pages += [
        f"#/queue/{protocol}/{queue}?state={state}"
        for protocol, queue in ids
        for state in ("waiting", "dead")
    ]
    pages += [f"#/job/{protocol}/{queue}/{job}" for (protocol, queue), jobs in ids.items() for job in jobs]
    pages += ["#/search?q=data+~+img", "#/search?q=%3Cimg%20src%3Dx%20onerror%3Dwindow.hit%3D1%3E"]
    shown = ""
    for hash_ in pages:
        browser.go("about:blank")
        browser.go(f"{gateway.url}/{hash_}")
        browser.until("document.querySelector('#page h1') && !document.querySelector('#page .loading')")
        shown += browser.value("document.body.textContent")
        assert_nothing_ran(browser, hash_)
    for field in ("value", "log", "result", "reason", "name", "queue", "attempt", "class"):
        assert f"window.hit='{field}'" in shown, f"{field} is shown as text"
    assert browser.messages == [], "nothing even tried"


def test_no_text_of_a_worker_s_schema_is_run(gateway: Gateway, samples: Samples, browser: Chromium) -> None:
    name = "<img src=x onerror=window.hit='handler'>"
    fields = TypedDict("fields", {canary("field"): str})  # type: ignore[misc]

    @samples.app.job(name, queue="mail")
    async def hostile(data: fields) -> None:  # type: ignore[valid-type]
        return

    def look() -> None:
        open_page(browser, gateway, "#/queue/bullmq/mail", "mail")
        browser.until("fetch('v1/queues/bullmq/mail/workers').then((one) => one.text())"
                      ".then((text) => text.includes('handler') && text.includes('properties'))")  # fmt: skip
        browser.click("button", "Add job")
        browser.fill("dialog input", name)
        browser.until("document.querySelector('dialog textarea').value.includes(\"window.hit='field'\")")
        browser.fill("dialog textarea", '{"data": {}}')
        browser.until("document.querySelector('dialog .field-error').textContent.includes('is missing')")
        assert "window.hit='field'" in browser.text("dialog .field-error")
        assert_nothing_ran(browser, "the form of a new job")
        open_page(browser, gateway, "#/workers", "Workers")
        browser.until("document.querySelector('#page').textContent.includes('mailer-1')")
        assert_nothing_ran(browser, "#/workers")

    samples.add("bullmq", "mail", "send", {})
    samples.while_working(look)
    assert browser.messages == []


def test_no_text_of_a_lake_is_run(valkey: Server, tmp_path: Path, browser: Chromium) -> None:
    valkey.flush()  # the one dead job is the lake's
    now = int(time.time() * 1000)
    names = {field: canary(f"lake-{field}") for field in ("queue", "job_id", "name", "worker", "reason")}
    times = {"queued_at": now - 9000, "started_at": now - 8000, "ended_at": now - 7000}
    write_week(str(tmp_path), now, [Attempt("bullmq", attempt=1, outcome="dead", **names, **times)])
    gateway = Gateway(valkey.url, lake=str(tmp_path), redis_timeout_s=10)
    try:
        open_page(browser, gateway, "#/history", "History")
        browser.until("document.querySelectorAll('#page tbody tr').length >= 4")
        shown = browser.value("document.querySelector('#page').textContent")
        assert_nothing_ran(browser, "#/history")
        open_page(browser, gateway, "#/search?q=state+%3D+dead", "Search")
        browser.click("#page tbody a")
        browser.until("document.querySelector('#page .notice')?.textContent.includes('what the lake knows')")
        shown += browser.value("document.querySelector('#page').textContent")
        assert_nothing_ran(browser, "a job of the lake")
    finally:
        browser.go("about:blank")
        gateway.stop()
    for field in names:
        assert f"window.hit='lake-{field}'" in shown, f"{field} is shown as text"
    assert browser.messages == []


def test_what_should_be_blocked_is(gateway: Gateway, browser: Chromium) -> None:
    open_page(browser, gateway, "", "Queues")
    browser.value("void document.body.append(Object.assign(new Image(), {src: 'http://127.0.0.1:1/x'}))")
    browser.until("1")
    refused = browser.value(
        "(() => { try { document.createElement('div').innerHTML = '<b>x</b>'; return false; }"
        " catch (error) { return error.name; } })()"
    )
    assert refused == "TypeError", "Trusted Types are required"
    assert "Content Security Policy" in str(browser.messages)


@pytest.mark.parametrize("path", ["/", "/v1/queues"])
def test_nothing_can_be_framed(gateway: Gateway, path: str) -> None:
    headers = gateway.client.get(path).headers
    assert headers["x-frame-options"] == "DENY"
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert orjson.loads(gateway.client.get("/livez").content) == {"status": "alive"}
