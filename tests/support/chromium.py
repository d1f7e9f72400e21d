"""Debian's Chromium, driven by Playwright; the page's Content-Security-Policy stays in force."""

import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

from playwright.sync_api import CDPSession, ConsoleMessage, Page, sync_playwright

from tests.support.polling import eventually

CHROMIUM = shutil.which("chromium")
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking")

T = TypeVar("T")


class Chromium:
    """A browser with one page; what went wrong on the page, and whatever was blocked, are kept.

    Playwright runs in a thread of its own: its event loop would be in the way of tests with another one.
    """

    def __init__(self) -> None:
        self.messages: list[str] = []
        self._thread = ThreadPoolExecutor(1, "playwright")
        self._page, self._cdp = self._do(self._open)

    def _open(self) -> tuple[Page, CDPSession]:
        self._playwright = sync_playwright().start()
        self._browser = self._playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = self._browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(30_000)
        page.on("pageerror", lambda error: self.messages.append(str(error)))
        page.on("console", self._keep)
        return page, page.context.new_cdp_session(page)

    def _keep(self, message: ConsoleMessage) -> None:
        # a response that says no is an answer
        if message.type == "error" and not message.text.startswith("Failed to load resource"):
            self.messages.append(message.text)

    def _close(self) -> None:
        self._browser.close()
        self._playwright.stop()

    def _do(self, act: Callable[[], T]) -> T:
        return self._thread.submit(act).result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._close)
        self._thread.shutdown()

    def call(self, method: str, **parameters: Any) -> Any:
        """What the browser answers to an order of its DevTools protocol."""
        return self._do(lambda: self._cdp.send(method, parameters))

    def cookies(self) -> list[Any]:
        """The cookies of the page."""
        return self._do(lambda: list(self._page.context.cookies()))

    def reset(self) -> None:
        """Forget what the pages before have left."""
        self._do(self._page.context.clear_cookies)
        self.resize(1280)
        self.prefer("light")
        self.messages.clear()

    def go(self, url: str) -> None:
        """Open a page, and wait until it is there."""
        self._do(lambda: self._page.goto(url))

    def value(self, expression: str) -> Any:
        """What a JavaScript expression is on the page; a promise is awaited."""
        return self._do(lambda: self._page.evaluate(expression))

    def text(self, selector: str) -> str:
        """The text of an element as it is seen; empty where there is none."""
        return str(self.value(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    def until(self, expression: str, seconds: float = 30.0) -> Any:
        """The first truthy value of an expression."""
        # Playwright's own wait evaluates a string on the page, which the policy refuses
        value = eventually(lambda: self.value(expression), seconds, pause=0.05)
        assert value, f"{expression} is still {value!r}: {self.text('body')}"
        return value

    def resize(self, width: int, height: int = 900) -> None:
        """Give the page this size."""
        self._do(lambda: self._page.set_viewport_size({"width": width, "height": height}))

    def prefer(self, theme: Literal["light", "dark"]) -> None:
        """Let the system prefer a light or a dark theme."""
        self._do(lambda: self._page.emulate_media(color_scheme=theme))

    def press(self, key: str) -> None:
        """Press and release a key."""
        self._do(lambda: self._page.keyboard.press(key))

    def click(self, selector: str, text: str = "") -> None:
        """Click the first element that is shown, with that text where one is given; wait for it."""
        found = self._page.locator(selector).filter(has_text=text, visible=True).first
        self._do(found.click)

    def fill(self, selector: str, text: str) -> None:
        """Write into an input, as typing does."""
        self._do(lambda: self._page.locator(selector).first.fill(text))

    def picture(self, path: Path) -> None:
        """Save what is seen."""
        self._do(lambda: self._page.screenshot(path=path))
