"""Headless Chromium, driven over the DevTools protocol.

Source: Chrome DevTools Protocol, https://chromedevtools.github.io/devtools-protocol/.
"""

import base64
import itertools
import json
import subprocess
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

import requests
from websocket import WebSocket, create_connection

from tests.support.eventually import eventually
from tests.support.page_modules import page_modules
from tests.support.peers import CHROMIUM

_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-port=0",
    "--remote-allow-origins=*",
)  # fmt: skip
_SECONDS = 90
_NAVIGATED = "navigated or closed"
_COMPLAINTS = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")


class NavigatedError(Exception):
    """Another page came while something was evaluated."""


class Browser:
    """A browser with one page; a context manager that ends it.

    Args:
        profile: an empty directory for what it keeps.
    """

    def __init__(self, profile: Path) -> None:
        self.events: deque[dict[str, Any]] = deque()
        self._numbers = itertools.count(1)
        log = (profile / "log").open("wb")
        self._process = subprocess.Popen(
            [CHROMIUM.command, *_FLAGS, f"--user-data-dir={profile}/profile", "about:blank"],
            stdout=log,
            stderr=log,
        )
        log.close()
        self.pid = self._process.pid
        self._port_file = profile / "profile/DevToolsActivePort"
        self._socket = self._connect(self._port_file)
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def _connect(self, port_file: Path) -> WebSocket:
        eventually(lambda: port_file.is_file() and "\n" in port_file.read_text(), self._process)
        port = port_file.read_text().split()[0]

        def page() -> str | None:
            pages = requests.get(f"http://127.0.0.1:{port}/json/list", timeout=_SECONDS).json()
            return next((e["webSocketDebuggerUrl"] for e in pages if e["type"] == "page"), None)

        return create_connection(eventually(page), timeout=_SECONDS)

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *problem: object) -> None:
        self._socket.close()
        self._process.terminate()
        self._process.wait(_SECONDS)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol; events that come meanwhile are kept."""
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv())
            if message.get("id") == number:
                error = message.get("error", {}).get("message", "")
                if method == "Runtime.evaluate" and _NAVIGATED in error:
                    raise NavigatedError(error)
                assert "error" not in message, (method, message["error"])
                result: dict[str, Any] = message["result"]
                return result
            self.events.append(message)

    def wait_for(self, event: str) -> dict[str, Any]:
        """The first event of this name since `events` was cleared, which may have come already."""
        for message in tuple(self.events):
            if message.get("method") == event:
                return message
        while True:
            message = json.loads(self._socket.recv())
            self.events.append(message)
            if message.get("method") == event:
                return message

    def open(self, url: str) -> None:
        """Load a page, with nothing kept of those before it."""
        self.events.clear()
        loader = self.call("Page.navigate", url=url).get("loaderId")
        self.wait_for("Page.loadEventFired")
        # Until it is there, the one before may ask, and complain, as that its server has gone.
        names = [event.get("method") for event in self.events]
        begun = names.index("Page.frameNavigated") if "Page.frameNavigated" in names else 0
        kept = [
            event for number, event in enumerate(self.events)
            if number >= begun or (names[number] not in _COMPLAINTS
            and event.get("params", {}).get("loaderId", loader) == loader)
        ]  # fmt: skip
        self.events = deque(kept)

    def resize(
        self, width: int, height: int, *, phone: bool = False, dark: bool = False,
        still: bool = False,
    ) -> None:  # fmt: skip
        """Show the page on a screen of this size; `still`: to somebody who wants no motion."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=phone,
        )
        scheme = "dark" if dark else "light"
        motion = "reduce" if still else "no-preference"
        features = [
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": motion},
        ]
        self.call("Emulation.setEmulatedMedia", features=features)

    def evaluate(self, script: str) -> Any:
        """The value of an expression in the page, or in the next one if that comes meanwhile."""
        while True:
            with suppress(NavigatedError):
                return self._evaluate(script)

    def leave(self, script: str) -> None:
        """Do what leads to another page, which may come before it is known that it was done."""
        with suppress(NavigatedError):
            self._evaluate(script)

    def resolve(self, script: str) -> Any:
        """The value of a promise in the page."""
        return self._evaluate(script, awaitPromise=True)

    def violations(self) -> Any:
        """What axe-core finds on the page as it is."""
        self.evaluate((page_modules() / "axe-core/axe.min.js").read_text() + "; 0")
        return self.resolve(
            "axe.run().then((found) => found.violations.map("
            "(each) => [each.id, each.nodes.map((node) => node.html)]))"
        )

    def _evaluate(self, script: str, **options: bool) -> Any:
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, **options)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key: str, code: int, text: str = "") -> None:
        """Press a key."""
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=code,
                **({"text": text} if text and kind == "keyDown" else {}),
            )

    def type(self, text: str) -> None:
        """Type a text into what has the focus."""
        self.call("Input.insertText", text=text)

    def screenshot(self, file: Path) -> None:
        """Write the whole page as a PNG."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(shot["data"]))

    def problems(self) -> list[str]:
        """What the console and the log of the page complain about."""
        found = []
        for event in self.events:
            match event.get("method"):
                case "Runtime.consoleAPICalled":
                    found.append(str(event["params"]["args"]))
                case "Runtime.exceptionThrown":
                    found.append(str(event["params"]["exceptionDetails"]))
                case "Log.entryAdded":
                    found.append(str(event["params"]["entry"]["text"]))
        return found

    def requested(self) -> list[str]:
        """The URLs that the page asked for; those inside the page itself (``data:``) are none."""
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
            and not event["params"]["request"]["url"].startswith("data:")
        ]
