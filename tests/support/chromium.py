"""Headless Chromium, spoken to through a pipe."""

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Self

from tests.support.polling import eventually

CHROMIUM = shutil.which("chromium")


class Chromium:
    """A browser with one page; its console and whatever it blocked are kept."""

    def __init__(self, folder: Path, size: tuple[int, int] = (1280, 800)) -> None:
        assert CHROMIUM is not None
        there, self._write = os.pipe()
        self._read, back = os.pipe()
        flags = [
            *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
            *("--disable-extensions", "--disable-background-networking", "--hide-scrollbars"),
        ]

        def hand_over() -> None:
            # the browser reads its orders at 3 and answers at 4
            orders, answers = os.dup(there), os.dup(back)
            os.dup2(orders, 3)
            os.dup2(answers, 4)

        self._process = subprocess.Popen(
            [CHROMIUM, *flags, f"--user-data-dir={folder}", f"--window-size={size[0]},{size[1]}",
             "--remote-debugging-pipe", "about:blank"],
            preexec_fn=hand_over, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(there)
        os.close(back)
        self._number, self._rest, self._session = 0, b"", ""
        self.messages: list[dict[str, Any]] = []
        """Exceptions of the page, and what the browser says it blocked."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(20)
        os.close(self._write)
        os.close(self._read)

    def call(self, method: str, **parameters: Any) -> Any:
        """What the browser answers to an order."""
        self._number += 1
        order: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            order["sessionId"] = self._session
        os.write(self._write, json.dumps(order).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            # an answer that says no is one; what was blocked or went wrong inside the page is another
            source = answer.get("params", {}).get("entry", {}).get("source", "network")
            if answer.get("method") == "Runtime.exceptionThrown" or source != "network":
                self.messages.append(answer["params"])

    def _next(self) -> Any:
        while b"\0" not in self._rest:
            read = os.read(self._read, 1 << 20)
            assert read, "the browser has gone"
            self._rest += read
        line, _, self._rest = self._rest.partition(b"\0")
        return json.loads(line)

    def go(self, url: str) -> None:
        """Open a page, and wait until it is there."""
        self.call("Page.navigate", url=url)
        self.until(f"location.href.startsWith({json.dumps(url)}) && document.readyState === 'complete'")

    def value(self, expression: str) -> Any:
        """What a JavaScript expression is on the page; a promise is awaited."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, (expression, answer["exceptionDetails"])
        return answer["result"].get("value")

    def text(self, selector: str) -> str:
        """The text of an element as it is seen; empty where there is none."""
        return str(self.value(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    def until(self, expression: str, seconds: float = 30.0) -> Any:
        """The first truthy value of an expression."""
        value = eventually(lambda: self.value(expression), seconds, pause=0.05)
        assert value, f"{expression} is still {value!r}: {self.text('body')}"
        return value

    def resize(self, width: int, height: int = 900) -> None:
        """Give the page this size."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def prefer(self, theme: str) -> None:
        """Let the system prefer a light or a dark theme."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])

    def press(self, key: str) -> None:
        """Press and release a key."""
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def click(self, selector: str, text: str = "") -> None:
        """Click the first element that is shown, with that text where one is given; wait for it."""
        found = (
            f"[...document.querySelectorAll({json.dumps(selector)})].find((one) =>"
            f" one.getClientRects().length && one.textContent.includes({json.dumps(text)}))"
        )
        self.until(f"!!{found}")
        self.value(f"void {found}.click()")

    def fill(self, selector: str, text: str) -> None:
        """Write into an input, as typing does."""
        self.until(f"!!document.querySelector({json.dumps(selector)})")
        self.value(
            f"((input) => {{ input.value = {json.dumps(text)};"
            f" input.dispatchEvent(new Event('input', {{bubbles: true}})); }})"
            f"(document.querySelector({json.dumps(selector)}))"
        )

    def picture(self, path: Path) -> None:
        """Save what is seen."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
