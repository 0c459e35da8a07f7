"""A headless Chromium, driven over a pipe."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import util_packages

_SECONDS = 60.0


# Debian's, Ubuntu's, and the browser that is made of it, which GitHub's machines have.
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def program() -> str | None:
    """A Chromium that is installed."""
    return next((name for name in _NAMES if shutil.which(name)), None)


def why_not() -> str | None:
    """Why there is no Chromium; None if there is, or could be installed."""
    return None if program() else util_packages.why_not({"chromium": "chromium"})


class Chromium:
    """One page. `messages` has what it wrote to the console, `requests` the addresses it asked for."""

    def __init__(self, directory: Path, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        self.messages: list[str] = []
        self.requests: list[str] = []
        self._number = 0
        self._buffer = b""
        commands, self._write = os.pipe()
        self._read, answers = os.pipe()

        def prepare() -> None:
            # 3 and 4 may be in use for the other one
            first, second = os.dup(commands), os.dup(answers)
            os.dup2(first, 3)
            os.dup2(second, 4)

        self._process = subprocess.Popen(
            [
                program() or "chromium",
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--hide-scrollbars",
                "--remote-debugging-pipe",
                f"--window-size={width},{height}",
                f"--user-data-dir={directory}",
                "about:blank",
            ],
            preexec_fn=prepare,
            close_fds=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands)
        os.close(answers)
        targets = self._call("Target.getTargets")["targetInfos"]
        page = next(target for target in targets if target["type"] == "page")
        attached = self._call("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **metrics)

    def __enter__(self) -> Chromium:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._process.kill()
        self._process.wait(30)
        os.close(self._read)
        os.close(self._write)

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)

    def value(self, expression: str) -> Any:
        """What a piece of JavaScript gives."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        return answer["result"].get("value")

    def wait_for(self, expression: str, seconds: float = _SECONDS) -> None:
        """Until it is true."""
        deadline = time.monotonic() + seconds
        while not self.value(expression):
            assert time.monotonic() < deadline, (expression, self.messages)
            time.sleep(0.05)

    def screenshot(self, path: Path) -> None:
        height = self.value("document.documentElement.scrollHeight")
        width = self.value("document.documentElement.scrollWidth")
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        answer = self.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(answer["data"]))

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._call(method, session=self._session, **parameters)

    def _call(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + _SECONDS
        while True:
            answer = self._next(deadline)
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result

    def _next(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready = select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))[0]
            assert ready, "chromium does not answer"
            data = os.read(self._read, 1 << 16)
            assert data, "chromium has ended"
            self._buffer += data
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        method, parameters = message.get("method"), message.get("params", {})
        if method == "Runtime.consoleAPICalled":
            self.messages.append(str(parameters["args"]))
        elif method == "Runtime.exceptionThrown":
            self.messages.append(str(parameters["exceptionDetails"]))
        elif method == "Log.entryAdded":
            self.messages.append(f"{parameters['entry']['text']} {parameters['entry'].get('url')}")
        elif method == "Network.requestWillBeSent":
            self.requests.append(str(parameters["request"]["url"]))
        return message
