"""The page of a job and its data, behind the door of horovod._figures.

Nothing may be embedded elsewhere, and the browser may load nothing from elsewhere.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from importlib.resources import files
from typing import Any

from horovod._figures.door import METRICS, Door, Handler
from horovod._figures.prometheus import exposition

_EVERY = 1.0
_PLACE = re.compile(rb'<script type="application/json" id="data">.*?</script>', re.DOTALL)


def page() -> bytes:
    """The page without data."""
    return files("horovod.runner.dashboard").joinpath("page.html").read_bytes()


def report(snapshot: dict[str, Any]) -> bytes:
    """The page with its data: a file of its own."""
    # "<" could end the element
    data = json.dumps(snapshot, allow_nan=False).replace("<", "\\u003c").encode()
    return _PLACE.sub(
        lambda match: b'<script type="application/json" id="data">' + data + b"</script>", page(), count=1
    )


def policy(text: bytes) -> str:
    """What the page may do: run its own script, and ask this server."""
    hashes = {
        kind: " ".join(
            f"'sha256-{base64.b64encode(hashlib.sha256(part).digest()).decode()}'"
            for part in re.findall(rb"<%s>(.*?)</%s>" % (kind, kind), text, re.DOTALL)
        )
        for kind in (b"script", b"style")
    }
    return (
        f"default-src 'self'; script-src {hashes[b'script']}; style-src {hashes[b'style']}; "
        "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


class _Handler(Handler):
    door: Dashboard

    def get(self, path: str) -> None:
        if path == "/token":
            # The token must not stay in the history of the browser.
            cookie = f"{self.cookie}={self.path.lstrip('/').partition('?')[0].rstrip('/')}"
            extra = {"Location": "/", "Set-Cookie": f"{cookie}; HttpOnly; SameSite=Strict; Path=/"}
            self.send(303, "text/plain", b"", extra)
        elif path == "/":
            extra = {"Content-Security-Policy": self.door.policy}
            self.send(200, "text/html; charset=utf-8", self.door.page, extra)
        elif path == "/state":
            self.send(200, "application/json", json.dumps(self.door.snapshot()).encode())
        elif path == METRICS:
            self.send_metrics(exposition(self.door.snapshot(), self.door.metrics()))
        elif path == "/events":
            self._stream()
        else:
            super().get(path)

    def post(self, path: str) -> None:
        """Only the button for stacks. A form of another page can't set the header."""
        if path != "/stacks":
            super().post(path)
        elif self.headers.get("X-Horovod") != "stacks":
            self.send(403, "text/plain", b"not from this page\n")
        else:
            asked = self.door.ask_stacks()
            self.send(202 if asked else 409, "text/plain", b"asked\n" if asked else b"rank 0 is not there\n")

    def _stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        while not self.door.closing.is_set():
            snapshot = self.door.snapshot()
            self.wfile.write(b"data: " + json.dumps(snapshot).encode() + b"\n\n")
            self.wfile.flush()
            if self.door.closing.wait(_EVERY):
                break
        with contextlib.suppress(OSError):
            self.wfile.write(b"data: " + json.dumps(self.door.snapshot()).encode() + b"\n\n")


class Dashboard(Door):
    """Serves ``snapshot()`` in threads of its own, until close()."""

    handler = _Handler

    def __init__(
        self,
        snapshot: Callable[[], dict[str, Any]],
        ask_stacks: Callable[[], bool],
        token: str,
        address: str = "127.0.0.1",
        port: int = 0,
        names: Iterable[str] = (),
        metrics: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        """``metrics()`` is what rank 0 has counted. OSError if it can't listen there."""
        self.snapshot = snapshot
        self.ask_stacks = ask_stacks
        self.metrics = metrics
        self.page = page()
        self.policy = policy(self.page)
        super().__init__(token, address, port, names)
