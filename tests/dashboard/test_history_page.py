"""The history page in a real browser, on a small lake; and what the lake adds to other pages."""

import time
from collections.abc import Iterator

import pytest

from corral.cli.demo.week import made_up_attempts, write_week
from tests.dashboard.conftest import Samples
from tests.dashboard.test_pages import AXE, ROWS, accessibility_findings, open_page
from tests.support.chromium import Chromium
from tests.support.gateway import Gateway
from tests.support.servers import Server


@pytest.fixture(scope="module")
def with_lake(valkey: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    path, now = str(tmp_path_factory.mktemp("lake")), int(time.time() * 1000)
    write_week(path, now, [one for one in made_up_attempts(now, days=3) if one.queue in ("mail", "films")])
    gateway = Gateway(valkey.url, lake=path, redis_timeout_s=10)
    yield gateway
    gateway.stop()


def test_days_are_shown_and_a_spike_leads_to_its_jobs(
    with_lake: Gateway, samples: Samples, browser: Chromium
) -> None:
    samples.add("bullmq", "mail", "send", {})
    open_page(browser, with_lake, "#/history", "History")
    browser.until("document.querySelectorAll('.chart svg .bar').length > 20")
    assert browser.value("document.querySelectorAll('.chart svg .curve').length") == 4
    titles = browser.value("[...document.querySelectorAll('#page h2')].map((one) => one.textContent)")
    assert titles == ["Throughput", "Most failures", "Waits", "Runs", "Queues", "Names", "Slowest names",
                      "Most failing names", "Workers"]  # fmt: skip
    if AXE.is_file():
        assert accessibility_findings(browser) == []
    slowest = browser.value("document.querySelector('#section-slowest-names ~ * tbody th').textContent")
    assert slowest.startswith("transcode")
    browser.click("#page tbody button", "mail")
    browser.until("location.hash.includes('queue=bullmq%2Fmail')")
    browser.until("!document.querySelector('#page').textContent.includes('transcode')")
    failures = browser.value("document.querySelector('.spikes li').textContent")
    assert "dead jobs" in failures
    browser.click(".spikes a", "dead jobs")
    browser.until("document.querySelector('#page h1')?.textContent === 'Search'")
    browser.until(
        f"{ROWS}.length > 5 && document.querySelector('.search-progress').textContent.includes('lake')"
    )
    assert browser.value(f"{ROWS}.every((row) => row.textContent.includes('dead lake'))")
    browser.click("#page tbody a", "week-")
    browser.until("document.querySelector('#page .notice')?.textContent.includes('what the lake knows')")
    assert browser.value("document.querySelectorAll('.timeline .span').length") == 6
    assert "451 greylisted" in browser.text(".timeline") or "421 too many" in browser.text(".timeline")
    browser.value("history.back()")
    browser.until("document.querySelector('#page h1')?.textContent === 'Search'")
    assert browser.messages == []


def test_the_lines_of_queues_are_of_days(with_lake: Gateway, samples: Samples, browser: Chromium) -> None:
    samples.add("bullmq", "mail", "send", {})
    line = "document.querySelector('tr[data-key=\"bullmq/mail\"] .spark')?"
    open_page(browser, with_lake, "", "Queues")
    browser.until(f"{line}.classList.contains('is-flat')")
    browser.value("void ((one) => { one.value = '168'; one.dispatchEvent(new Event('change')); })"
                  "(document.querySelector('.heading select'))")  # fmt: skip
    browser.until(f"{line}.classList.contains('is-flat') === false")
    assert browser.value("location.hash").endswith("span=168")


def test_a_search_says_what_the_lake_cannot_tell(
    with_lake: Gateway, samples: Samples, browser: Chromium
) -> None:
    samples.add("bullmq", "mail", "send", {"user": {"id": 17}})
    open_page(browser, with_lake, "#/search?q=data.user.id+%3D+17", "Search")
    browser.until("document.querySelector('.search-progress').textContent.includes('keeps no data')")
    assert browser.value(f"{ROWS}.length") == 1


def test_without_a_lake_the_page_says_how_to_have_one(gateway: Gateway, browser: Chromium) -> None:
    open_page(browser, gateway, "#/history", "History")
    assert "corral gateway --lake PATH" in browser.text("#page")
