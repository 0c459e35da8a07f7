"""The HTTP door of a job: on loopback unless told otherwise, and only with the token.

Loopback is no wall: any page in a browser may try it, also under a name of its own that leads here.
So every request needs the token (in the path, a cookie, or as a bearer), the Host must be an
address or a name that this server has, and nothing is served by name. Handlers get copies of the
model, never objects of the job.
"""

from __future__ import annotations

import contextlib
import hmac
import ipaddress
import re
import socket
import threading
from collections.abc import Callable, Iterable
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

CLIENTS = 16
CONNECTIONS = 8 * CLIENTS  # of which not all have shown the token yet
METRICS = "/metrics"
_SECONDS = 5.0  # for a client to take what it asked for
_COOKIE = "horovod"
_HTTP = 80  # the port that no browser mentions
_PORTS = 65535
_HOST = re.compile(r"(?:(?P<name>[^:\[\]]+)|\[(?P<six>[^\[\]]+)\])(?::(?P<port>[0-9]{1,5}))?")


def address_of(text: str, source: str) -> tuple[str, int]:
    """Address and port; ValueError names ``source``."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > _PORTS:
        raise ValueError(f"{source} {text}: give an address and a port, as 127.0.0.1:8080")
    host = host.strip("[]")
    try:
        ipaddress.ip_address(host)
    except ValueError:
        raise ValueError(f"{source} {text}: {host!r} is not an IP address of this machine") from None
    return host, int(port)


def is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback


class Door:
    """Answers in threads of its own, until close(); what, is the handler's to know."""

    handler: ClassVar[type[Handler]]

    def __init__(self, token: str, address: str, port: int, names: Iterable[str]) -> None:
        """OSError if it can't listen there."""
        self._token = token
        self.slots = threading.BoundedSemaphore(CLIENTS)
        self.closing = threading.Event()
        self._names = {"localhost", *(name.lower() for name in names)}
        self._server = _Server((address, port), type("Handler", (self.handler,), {"door": self}))
        self.address, self.port = address, int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, name="hvd-door", daemon=True)
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

    def leave_to_parent(self) -> None:
        """In a child that was forked: the address must be free when this process has left it."""
        self._server.socket.close()

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


class Handler(BaseHTTPRequestHandler):
    """Lets in who has the token; get() and post() are for those who come then."""

    door: Door
    timeout = _SECONDS
    protocol_version = "HTTP/1.1"
    server_version = "horovod"
    sys_version = ""

    def get(self, path: str) -> None:
        self.send(404, "text/plain", b"there is nothing here\n")

    def post(self, path: str) -> None:
        self.send(404, "text/plain", b"there is nothing here\n")

    def send_metrics(self, text: str) -> None:
        self.send(200, "text/plain; version=0.0.4; charset=utf-8", text.encode())

    def log_message(self, format: str, *args: Any) -> None:
        pass  # the path may have the token

    def do_GET(self) -> None:
        self._limited(self.get)

    def do_POST(self) -> None:
        self._limited(self.post)

    def _limited(self, answer: Callable[[str], None]) -> None:
        if not self.door.slots.acquire(blocking=False):
            self.send(503, "text/plain", b"too many clients\n")
            return
        try:
            if not self.door.is_meant(self.headers.get("Host", "")):
                self.send(421, "text/plain", b"this server has another name\n")
                return
            path = self._admitted()
            if path is None:
                self.send(401, "text/plain", b"the token is missing or wrong\n")
                return
            with contextlib.suppress(OSError):
                answer(path)
        finally:
            self.door.slots.release()

    def _admitted(self) -> str | None:
        """The path without the token; None if there is no right token anywhere."""
        path = self.path.partition("?")[0]
        first, _, rest = path.lstrip("/").partition("/")
        if self.door.admits(first):
            return f"/{rest}" if rest else "/token"
        bearer = self.headers.get("Authorization", "").partition("Bearer ")[2]
        if self.door.admits(bearer):
            return path
        with contextlib.suppress(CookieError):
            cookie = SimpleCookie(self.headers.get("Cookie", "")).get(self.cookie)
            if cookie is not None and self.door.admits(cookie.value):
                return path
        return None

    @property
    def cookie(self) -> str:
        # Cookies know no ports: two jobs on one machine must not forget each other's.
        return f"{_COOKIE}-{self.door.port}"

    def send(self, code: int, kind: str, body: bytes, extra: dict[str, str] | None = None) -> None:
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


class _MetricsHandler(Handler):
    door: MetricsDoor

    def get(self, path: str) -> None:
        if path == METRICS:
            self.send_metrics(self.door.text())
        else:
            super().get(path)


class MetricsDoor(Door):
    """Serves the metrics alone."""

    handler = _MetricsHandler

    def __init__(self, text: Callable[[], str], token: str, address: str, port: int) -> None:
        self.text = text
        super().__init__(token, address, port, [socket.gethostname()])
