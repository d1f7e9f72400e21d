"""The dashboard's files: what they may do, and what is not in them."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from fastapi import FastAPI

from corral.gateway import GatewaySettings, create_app
from corral.gateway.dashboard import FILES
from tests.gateway.conftest import OpenGateway
from tests.support.chromium import Chromium
from tests.support.gateway import KEYS_JSON, Gateway
from tests.support.servers import Server

STATIC = Path(__file__).resolve().parents[2] / "src/corral/gateway/dashboard"
MODULES = sorted((STATIC / "js").rglob("*.js"))
MOST_LINES = 250


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
    assert policy["require-trusted-types-for"] == "'script'"
    assert "unsafe" not in response.headers["content-security-policy"]
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["x-frame-options"] == "DENY"
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
            assert link is None or link.startswith("#") or f"/{link}" in FILES, "relative: it may be mounted"
    assert all(attributes.get("alt") is not None for tag, attributes in page.tags if tag == "img")


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_no_module_is_long_or_turns_text_into_markup(module: Path) -> None:
    text = module.read_text()
    banned = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|DOMParser|srcdoc"
    assert re.findall(banned, text) == []
    assert "document.cookie" not in text
    assert len(text.splitlines()) < MOST_LINES
    assert text.startswith("// "), "a module says what it is"
    for imported in re.findall(r'(?:from|import\()\s*"([^"]+)"', text):
        assert (module.parent / imported).is_file(), imported


def test_a_key_is_needed_for_the_data_and_none_for_the_page(open_gateway: OpenGateway) -> None:
    gateway = open_gateway(keys=KEYS_JSON)
    assert gateway.client.get("/").status_code == 200
    assert gateway.client.get("/static/js/main.js").status_code == 200
    assert gateway.client.get("/v1/queues").status_code == 401
    assert gateway.client.get("/static/../v1/queues").status_code == 401
    assert gateway.client.get("/static/other.js").status_code in (401, 404)


def test_it_can_be_mounted_in_another_app(server: Server, browser: Chromium) -> None:
    inner = create_app(GatewaySettings(redis_url=server.url, redis_timeout_s=10, keys=KEYS_JSON))
    host = FastAPI(lifespan=inner.router.lifespan_context)
    host.mount("/ops/jobs", inner)
    gateway = Gateway(server.url, app=host)
    try:
        assert gateway.client.get("/ops/jobs/v1/queues").status_code == 401
        browser.go(f"{gateway.url}/ops/jobs/")
        browser.fill("#key", "admin-key-of-the-tests")
        browser.click("#key-form button")
        browser.until("document.getElementById('status').dataset.state === 'live'")
        browser.until("document.querySelector('#page h1')?.textContent === 'Queues'")
        cookies = browser.cookies()
        assert [(one["name"], one["path"]) for one in cookies] == [("corral_session", "/ops/jobs/")]
    finally:
        browser.go("about:blank")
        gateway.stop()
