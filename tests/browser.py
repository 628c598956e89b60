"""Headless Chromium by its own protocol over two pipes: no driver and no package needed."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
ABSENT = "no chromium on this machine: apt-get install chromium"


class Page:
    """One tab: loads a file, runs script in it, keeps what the console said."""

    def __init__(self, process: subprocess.Popen[bytes], out: int, into: int) -> None:
        self._process, self._out, self._in = process, out, into
        self._rest, self._number, self._session = b"", 0, ""
        self.console: list[str] = []
        self.requests: list[str] = []
        self.loaded = False
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        found = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = found["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command, and its answer; events on the way are noted."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            found = self._read()
            if found.get("id") == self._number:
                if "error" in found:
                    raise AssertionError(found["error"])
                return dict(found["result"])

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            part = os.read(self._in, 1 << 16)
            if not part:
                raise AssertionError("chromium ended")
            self._rest += part
        text, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(text)
        self._note(found.get("method", ""), found.get("params", {}))
        return found

    def _note(self, method: str, params: dict[str, Any]) -> None:
        if method == "Page.loadEventFired":
            self.loaded = True
        elif method == "Runtime.exceptionThrown":
            self.console.append(json.dumps(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled":
            self.console.append(json.dumps(params["args"]))
        elif method == "Log.entryAdded":
            self.console.append(str(params["entry"]["text"]))
        elif method == "Network.requestWillBeSent":
            self.requests.append(str(params["request"]["url"]))

    def open(self, path: Path, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Load a file in a window of this size."""
        theme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=theme)
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.loaded = False
        self.call("Page.navigate", url=path.resolve().as_uri())
        while not self.loaded:
            self._read()

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def key(self, name: str) -> None:
        """Press a key."""
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name)

    def picture(self, path: Path, *, whole: bool = True) -> None:
        """Write what is seen as PNG; of the whole page, or of the window."""
        found = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
            found = self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(found["data"]))

    def pdf(self) -> bytes:
        """The page as it prints."""
        return base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"])


@contextmanager
def browser(folder: Path) -> Iterator[Page]:
    """A browser without a window, with its profile in a folder."""
    here, there = os.pipe(), os.pipe()
    flags = (
        "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run "
        "--remote-debugging-pipe --disable-background-networking --disable-extensions"
    )
    # The protocol's two pipes must be the file descriptors 3 and 4.
    shell = f'exec "$0" {flags} --user-data-dir="$1" 3<&{here[0]} 4>&{there[1]}'
    process = subprocess.Popen(
        ["bash", "-c", shell, CHROMIUM, str(folder / "profile")],
        pass_fds=(here[0], there[1]),
        stderr=subprocess.DEVNULL,
    )
    os.close(here[0])
    os.close(there[1])
    try:
        yield Page(process, here[1], there[0])
    finally:
        process.terminate()
        process.wait(20)
        os.close(here[1])
        os.close(there[0])
