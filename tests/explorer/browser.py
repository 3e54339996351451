"""A headless Chromium, driven over its DevTools protocol: a page, its console, its requests, input and screenshots."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-extensions", "--mute-audio"),
    *("--disable-dev-shm-usage", "--remote-debugging-port=0", "--remote-allow-origins=*", "--hide-scrollbars"),
)
SECONDS = 30.0


def find() -> str:
    """The browser; the test is skipped where there is none."""
    found = os.environ.get("SUSD_BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)
    if not found:
        pytest.skip("no Chromium is installed: apt-get install chromium, or name one in SUSD_BROWSER")
    return found


@contextlib.contextmanager
def launched() -> Iterator[str]:
    """A browser process; the address of its DevTools."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        log = open(Path(profile) / "log", "w+")  # noqa: SIM115
        process = subprocess.Popen([find(), *FLAGS, f"--user-data-dir={profile}", "about:blank"], stderr=log, stdout=log)
        try:
            port = Path(profile) / "DevToolsActivePort"
            wait(lambda: port.exists() and len(port.read_text().splitlines()) > 1, "the browser to start")
            yield f"127.0.0.1:{port.read_text().splitlines()[0]}"
        finally:
            process.terminate()
            process.wait(10)
            log.close()


def wait(condition: Any, what: str, seconds: float = SECONDS) -> Any:
    """What a condition returns as soon as it is true."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError(f"waited {seconds:.0f} s for {what}")


class Page:
    """One tab. `errors` are messages of its console and failed requests, `requests` the addresses it asked for."""

    def __init__(self, address: str, width: int = 1280, height: int = 860, phone: bool = False, dark: bool = False) -> None:
        request = urllib.request.Request(f"http://{address}/json/new?about:blank", method="PUT")
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            target = json.loads(answer.read())
        self._close = f"http://{address}/json/close/{target['id']}"
        self._stack = contextlib.ExitStack()
        opened = connect(target["webSocketDebuggerUrl"], max_size=None, open_timeout=SECONDS)
        self._socket: ClientConnection = self._stack.enter_context(opened)
        self._numbers = itertools.count(1)
        self.errors: list[str] = []
        self.requests: list[str] = []
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        metrics = {"width": width, "height": height, "deviceScaleFactor": 2 if phone else 1, "mobile": phone}
        self.call("Emulation.setDeviceMetricsOverride", **metrics)
        if phone:
            self.call("Emulation.setTouchEmulationEnabled", enabled=True)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def close(self) -> None:
        self._stack.close()
        with contextlib.suppress(OSError):
            urllib.request.urlopen(self._close, timeout=SECONDS).close()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv(timeout=SECONDS))
            if message.get("id") == number:
                assert "error" not in message, f"{method}: {message['error']}"
                return dict(message["result"])
            self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        kind, given = message["method"], message["params"]
        if kind == "Runtime.exceptionThrown":
            details = given["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        elif kind == "Runtime.consoleAPICalled" and given["type"] in ("error", "warning", "assert"):
            self.errors.append(" ".join(str(item.get("value", item.get("description"))) for item in given["args"]))
        elif kind == "Log.entryAdded" and given["entry"]["level"] in ("error", "warning"):
            self.errors.append(f"{given['entry']['text']} {given['entry'].get('url', '')}")
        elif kind == "Network.requestWillBeSent":
            self.requests.append(given["request"]["url"])
        elif kind == "Network.webSocketCreated":
            self.requests.append(given["url"])

    def eval(self, expression: str) -> Any:
        """The value of an expression, awaited if it is a promise."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, expression: str, seconds: float = SECONDS) -> Any:
        return wait(lambda: self.eval(expression), expression, seconds)

    def open(self, url: str) -> None:
        """Load a page of the explorer and wait until it is ready."""
        self.call("Page.navigate", url=url)
        self.wait("document.documentElement?.dataset.ready === 'true' || document.querySelector('.failure')?.textContent")

    def box(self, selector: str) -> tuple[float, float, float, float]:
        """x, y, width and height of an element, scrolled into view."""
        script = f"""(() => {{ const e = document.querySelector({json.dumps(selector)});
            e.scrollIntoView({{block: "center"}});
            const b = e.getBoundingClientRect(); return [b.x, b.y, b.width, b.height]; }})()"""
        x, y, width, height = self.eval(script)
        return x, y, width, height

    def mouse(self, kind: str, x: float, y: float) -> None:
        pressed = {"button": "left", "buttons": 0 if kind == "mouseReleased" else 1, "clickCount": 1}
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **pressed)

    def drag(self, selector: str, *points: tuple[float, float]) -> None:
        """Press at the first point, which is a share of the element's box, and move through the others."""
        x, y, width, height = self.box(selector)
        places = [(x + a * width, y + b * height) for a, b in points]
        self.mouse("mousePressed", *places[0])
        for place in places[1:]:
            self.mouse("mouseMoved", *place)
        self.mouse("mouseReleased", *places[-1])

    def click(self, selector: str, at: tuple[float, float] = (0.5, 0.5)) -> None:
        self.drag(selector, at)

    def set(self, selector: str, value: object, event: str = "change") -> None:
        """Give an input or a list another value, as a person would."""
        found = f"document.querySelector({json.dumps(selector)})"
        self.eval(f"{found}.value = {json.dumps(value)}; {found}.dispatchEvent(new Event('{event}'))")

    def key(self, key: str, text: str = "", code: str = "", number: int = 0, hold: float = 0.0) -> None:
        given = {"key": key, "code": code or key, "windowsVirtualKeyCode": number}
        self.call("Input.dispatchKeyEvent", type="keyDown", **given, **({"text": text} if text else {}))
        time.sleep(hold)
        self.call("Input.dispatchKeyEvent", type="keyUp", **given)

    def screenshot(self, path: Path, full: bool = False) -> Path:
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=full)
        path.write_bytes(base64.b64decode(found["data"]))
        return path
