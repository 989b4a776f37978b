"""A browser by its DevTools protocol over a pipe: open a page, evaluate, print. No package, no download.

The protocol: https://chromedevtools.github.io/devtools-protocol/ (`--remote-debugging-pipe`: messages of JSON, each
ended by a zero byte, read from descriptor 3 and written to descriptor 4).
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from select import select
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
VARIABLE = "CHROMIUM"  # the path of another one
ANSWER_S = 60.0
# Becomes the browser with its ends of the pipes at 3 and 4, moved out of the way first.
_BECOME = """
import os, sys
reads, writes = (os.dup(int(number)) for number in sys.argv[1:3])
reads, writes = os.dup(reads), os.dup(writes)
os.dup2(reads, 3)
os.dup2(writes, 4)
os.execvp(sys.argv[3], sys.argv[3:])
"""


def found() -> str | None:
    """The browser of this machine, None where there is none."""
    named = os.environ.get(VARIABLE)
    return named or next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One browser with one page."""

    def __init__(self, requests: int, answers: int) -> None:
        self._requests, self._answers = requests, answers
        self._buffer = b""
        self._last = 0
        self._session: str | None = None

    def start(self) -> None:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of a method; an error of the protocol raises RuntimeError."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._requests, json.dumps(message).encode() + b"\0")
        answer = self._until(lambda said: said.get("id") == self._last)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return dict(answer["result"])

    def open(self, file: Path, width: int, scheme: str = "light", media: str = "") -> None:
        """Load a file in a window so wide. media : "print" lays it out as for paper"""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", media=media, features=features)
        self.call("Page.navigate", url=file.resolve().as_uri())
        self._until(lambda said: said.get("method") == "Page.loadEventFired")

    def evaluate(self, script: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def pdf(self, width_in: float, height_in: float) -> bytes:
        """The page on paper of that size, with the margins of its style sheet."""
        self.call("Emulation.setEmulatedMedia", media="", features=[])
        size = {"paperWidth": width_in, "paperHeight": height_in}
        margins = dict.fromkeys(("marginTop", "marginBottom", "marginLeft", "marginRight"), 16 / 25.4)
        data = self.call("Page.printToPDF", printBackground=False, **size, **margins)["data"]
        return base64.b64decode(data)

    def picture(self) -> bytes:
        """The whole page as PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"])

    def _until(self, wanted: Any) -> dict[str, Any]:
        while True:
            said: dict[str, Any] = json.loads(self._message())
            if wanted(said):
                return said

    def _message(self) -> bytes:
        while b"\0" not in self._buffer:
            if not select([self._answers], [], [], ANSWER_S)[0]:
                raise RuntimeError(f"the browser has said nothing for {ANSWER_S:.0f} s")
            read = os.read(self._answers, 1 << 16)
            if not read:
                raise RuntimeError("the browser has ended")
            self._buffer += read
        message, _, self._buffer = self._buffer.partition(b"\0")
        return message


@contextmanager
def started(program: str, profile: Path) -> Iterator[Browser]:
    """A headless browser whose files lie in the folder `profile`."""
    to_browser, from_us = os.pipe()
    to_us, from_browser = os.pipe()
    options = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars")
    command = [program, *options, "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"]
    process = subprocess.Popen(
        [sys.executable, "-c", _BECOME, str(to_browser), str(from_browser), *command],
        pass_fds=(to_browser, from_browser),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_browser)
    os.close(from_browser)
    try:
        browser = Browser(from_us, to_us)
        browser.start()
        yield browser
        browser.call("Page.close")
    finally:
        process.terminate()
        process.wait(30)
        os.close(from_us)
        os.close(to_us)
