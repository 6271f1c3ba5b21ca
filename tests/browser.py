"""A browser without a screen, for the tests of pages: Chromium, driven through chromedriver with the WebDriver
protocol, which is JSON over HTTP (https://www.w3.org/TR/webdriver2/).

`scripts/browser.sh` installs both, and axe-core, which looks for faults of accessibility. Where they are missing the
tests are skipped with a notice, unless `CI` is `true` and Chromium is installed: then they are required.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
AXE = Path(os.environ.get("HLO_OPT_AXE", ROOT / "build" / "browser" / "node_modules" / "axe-core" / "axe.min.js"))
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
"""The key of an element in answers of the protocol."""
KEYS = {"Enter": "\ue007", "Escape": "\ue00c", "Down": "\ue015", "Up": "\ue013"}
ARGUMENTS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1440,900")


def required() -> tuple[str, str]:
    """The paths of Chromium and of its driver. Skips the test where one is missing; fails it where `CI=true` and
    Chromium is there."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if chromium is not None and driver is not None:
        return chromium, driver
    if chromium is not None and os.environ.get("CI") == "true":
        pytest.fail("Chromium is installed without chromedriver: scripts/browser.sh installs both")
    pytest.skip("no Chromium with chromedriver: scripts/browser.sh installs them")


class Browser:
    """One window."""

    def __init__(self, port: int, chromium: str, dark: bool = False) -> None:
        self.address = f"http://127.0.0.1:{port}"
        arguments = [*ARGUMENTS, *(["--blink-settings=preferredColorScheme=0"] if dark else [])]
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": {"binary": chromium, "args": arguments},
            "goog:loggingPrefs": {"browser": "ALL"},
        }
        made = self.ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self.session = f"/session/{made['sessionId']}"

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """What the driver answers. Raises AssertionError with what it says of a fault."""
        data = None if method == "GET" else json.dumps(body if body is not None else {}).encode()
        request = urllib.request.Request(self.address + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(json.load(error)["value"]["message"]) from None

    def open(self, path: Path) -> None:
        self.ask("POST", f"{self.session}/url", {"url": path.as_uri()})
        assert self.run("return document.documentElement.dataset.ready") == "true"

    def run(self, script: str, *arguments: object) -> Any:
        return self.ask("POST", f"{self.session}/execute/sync", {"script": script, "args": list(arguments)})

    def run_until_called(self, script: str) -> Any:
        """The value that a script gives to its last argument, a function."""
        return self.ask("POST", f"{self.session}/execute/async", {"script": script, "args": []})

    def _found(self, selector: str) -> str:
        found = self.ask("POST", f"{self.session}/element", {"using": "css selector", "value": selector})
        return f"{self.session}/element/{found[ELEMENT]}"

    def click(self, selector: str) -> None:
        self.ask("POST", f"{self._found(selector)}/click")

    def type(self, selector: str, text: str) -> None:
        self.ask("POST", f"{self._found(selector)}/value", {"text": text})

    def text(self, selector: str) -> str:
        return str(self.ask("GET", f"{self._found(selector)}/text"))

    def press(self, key: str) -> None:
        """A key for what has the focus."""
        strokes = [{"type": "keyDown", "value": KEYS.get(key, key)}, {"type": "keyUp", "value": KEYS.get(key, key)}]
        actions = [{"type": "key", "id": "keyboard", "actions": strokes}]
        self.ask("POST", f"{self.session}/actions", {"actions": actions})

    def errors(self) -> list[str]:
        """What the console says, from warnings on."""
        found = self.ask("POST", f"{self.session}/se/log", {"type": "browser"})
        return [line["message"] for line in found if line["level"] in ("SEVERE", "WARNING")]

    def picture(self) -> bytes:
        return base64.b64decode(self.ask("GET", f"{self.session}/screenshot"))

    def faults_of_access(self) -> list[str]:
        """What axe-core has against the page as it is shown."""
        self.run(AXE.read_text(encoding="utf-8"))
        return list(
            self.run_until_called(
                "const done = arguments[0];"
                "axe.run(document).then((r) => done(r.violations.map((v) => `${v.id}: ${v.help}: "
                "${v.nodes[0].html}`)));"
            )
        )


@contextmanager
def browsers() -> Iterator[Any]:
    """Starts a driver; gives a function that opens windows, which are closed at the end."""
    chromium, driver = required()
    process = subprocess.Popen([driver, "--port=0"], stdout=subprocess.PIPE, text=True)
    made: list[Browser] = []
    try:
        assert process.stdout is not None
        line = next(line for line in process.stdout if "started successfully on port" in line)
        port = int(line.rstrip(".\n").rpartition(" ")[2])

        def start(dark: bool = False) -> Browser:
            made.append(Browser(port, chromium, dark))
            return made[-1]

        yield start
    finally:
        for one in made:
            one.ask("DELETE", one.session)
        process.terminate()
        process.wait(10)


def wait_for(test: Any, seconds: float = 5.0) -> None:
    """Waits until a test holds; fails after `seconds`."""
    end = time.monotonic() + seconds
    while not test():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)
