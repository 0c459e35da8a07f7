"""The HTTP door of a job: on loopback unless told otherwise, and only with the token.

Loopback is no wall: any page in a browser may try it, also under a name of its own that leads here.
So every request needs the token (in the path, a cookie, or as a bearer), the Host must be an
address or a name that this server has, nothing may be embedded elsewhere, and the browser may load
nothing from elsewhere. Nothing is served by name. Handlers get copies of the model, never objects of
the job.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import ipaddress
import json
import re
import socket
import threading
from collections.abc import Callable, Iterable
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any

from horovod.runner.dashboard.prometheus import exposition

CLIENTS = 16
CONNECTIONS = 8 * CLIENTS  # of which not all have shown the token yet
_SECONDS = 5.0  # for a client to take what it asked for
_EVERY = 1.0
_COOKIE = "horovod"
_HTTP = 80  # the port that no browser mentions
_HOST = re.compile(r"(?:(?P<name>[^:\[\]]+)|\[(?P<six>[^\[\]]+)\])(?::(?P<port>[0-9]{1,5}))?")
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


class Dashboard:
    """Serves ``snapshot()`` in threads of its own, until close()."""

    def __init__(
        self,
        snapshot: Callable[[], dict[str, Any]],
        ask_stacks: Callable[[], bool],
        token: str,
        address: str = "127.0.0.1",
        port: int = 0,
        names: Iterable[str] = (),
    ) -> None:
        """OSError if it can't listen there."""
        self.snapshot = snapshot
        self.ask_stacks = ask_stacks
        self._token = token
        self.page = page()
        self.policy = policy(self.page)
        self.slots = threading.BoundedSemaphore(CLIENTS)
        self.closing = threading.Event()
        handler = type("Handler", (_Handler,), {"dashboard": self})
        self._server = _Server((address, port), handler)
        self.address, self.port = address, int(self._server.server_address[1])
        self._names = {"localhost", *(name.lower() for name in names)}
        self._thread = threading.Thread(target=self._server.serve_forever, name="hvd-dashboard", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """With the token."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"http://{host}:{self.port}/{self._token}"

    def is_meant(self, host: str) -> bool:
        """Whether a Host header names this server: by an address, which nobody can let lead
        elsewhere, or by a name of its own.
        """
        parts = _HOST.fullmatch(host.lower())
        if parts is None or int(parts["port"] or _HTTP) != self.port:
            return False
        if parts["name"] in self._names:
            return True
        with contextlib.suppress(ValueError):
            address = ipaddress.ip_address(parts["six"] or parts["name"])
            return (address.version == 6) == bool(parts["six"])
        return False

    def admits(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(), self._token.encode())

    def close(self) -> None:
        """Ends it; clients are not waited for."""
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = CONNECTIONS

    def __init__(self, address: tuple[str, int], handler: Any) -> None:
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        self._connections = threading.BoundedSemaphore(CONNECTIONS)
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """A thread for each connection, but not for any number of them."""
        if not self._connections.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # there is no thread
            self._connections.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._connections.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is nothing to write about."""


class _Handler(BaseHTTPRequestHandler):
    dashboard: Dashboard
    timeout = _SECONDS
    protocol_version = "HTTP/1.1"
    server_version = "horovod"
    sys_version = ""

    def log_message(self, format: str, *args: Any) -> None:
        pass  # the path may have the token

    def do_GET(self) -> None:
        self._limited(self._get)

    def do_POST(self) -> None:
        self._limited(self._post)

    def _limited(self, answer: Callable[[str], None]) -> None:
        if not self.dashboard.slots.acquire(blocking=False):
            self._send(503, "text/plain", b"too many clients\n")
            return
        try:
            if not self.dashboard.is_meant(self.headers.get("Host", "")):
                self._send(421, "text/plain", b"this server has another name\n")
                return
            path = self._admitted()
            if path is None:
                self._send(401, "text/plain", b"the token is missing or wrong\n")
                return
            with contextlib.suppress(OSError):
                answer(path)
        finally:
            self.dashboard.slots.release()

    def _admitted(self) -> str | None:
        """The path without the token; None if there is no right token anywhere."""
        path = self.path.partition("?")[0]
        first, _, rest = path.lstrip("/").partition("/")
        if self.dashboard.admits(first):
            return f"/{rest}" if rest else "/token"
        bearer = self.headers.get("Authorization", "").partition("Bearer ")[2]
        if self.dashboard.admits(bearer):
            return path
        with contextlib.suppress(CookieError):
            cookie = SimpleCookie(self.headers.get("Cookie", "")).get(self._cookie)
            if cookie is not None and self.dashboard.admits(cookie.value):
                return path
        return None

    @property
    def _cookie(self) -> str:
        # Cookies know no ports: two jobs on one machine must not forget each other's.
        return f"{_COOKIE}-{self.dashboard.port}"

    def _get(self, path: str) -> None:
        if path == "/token":
            # The token must not stay in the history of the browser.
            cookie = f"{self._cookie}={self.path.lstrip('/').partition('?')[0].rstrip('/')}"
            extra = {"Location": "/", "Set-Cookie": f"{cookie}; HttpOnly; SameSite=Strict; Path=/"}
            self._send(303, "text/plain", b"", extra)
        elif path == "/":
            extra = {"Content-Security-Policy": self.dashboard.policy}
            self._send(200, "text/html; charset=utf-8", self.dashboard.page, extra)
        elif path == "/state":
            self._send(200, "application/json", json.dumps(self.dashboard.snapshot()).encode())
        elif path == "/metrics":
            text = exposition(self.dashboard.snapshot())
            self._send(200, "text/plain; version=0.0.4; charset=utf-8", text.encode())
        elif path == "/events":
            self._stream()
        else:
            self._send(404, "text/plain", b"there is nothing here\n")

    def _post(self, path: str) -> None:
        """Only the button for stacks. A form of another page can't set the header."""
        if path != "/stacks":
            self._send(404, "text/plain", b"there is nothing here\n")
        elif self.headers.get("X-Horovod") != "stacks":
            self._send(403, "text/plain", b"not from this page\n")
        else:
            asked = self.dashboard.ask_stacks()
            self._send(202 if asked else 409, "text/plain", b"asked\n" if asked else b"rank 0 is not there\n")

    def _stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        while not self.dashboard.closing.is_set():
            snapshot = self.dashboard.snapshot()
            self.wfile.write(b"data: " + json.dumps(snapshot).encode() + b"\n\n")
            self.wfile.flush()
            if self.dashboard.closing.wait(_EVERY):
                break
        with contextlib.suppress(OSError):
            self.wfile.write(b"data: " + json.dumps(self.dashboard.snapshot()).encode() + b"\n\n")

    def _send(self, code: int, kind: str, body: bytes, extra: dict[str, str] | None = None) -> None:
        with contextlib.suppress(OSError):
            self.send_response(code)
            headers = {
                "Content-Type": kind,
                "Content-Length": str(len(body)),
                "Cache-Control": "no-store",
                "Referrer-Policy": "no-referrer",
                "X-Content-Type-Options": "nosniff",
                "X-Frame-Options": "DENY",
                "Connection": "close",
                **(extra or {}),
            }
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.close_connection = True
            if self.command != "HEAD":
                self.wfile.write(body)
