"""The HTTP door: who gets in, and what the page may do."""

from __future__ import annotations

import http.client
import json
import re
import select
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from test_dashboard_model import running

from horovod._figures.door import CLIENTS, CONNECTIONS
from horovod.runner.dashboard.server import Dashboard, page, report

TOKEN = "t" * 32


@pytest.fixture
def asked() -> list[int]:
    return []


@pytest.fixture
def dashboard(asked: list[int]) -> Iterator[Dashboard]:
    model = running()
    opened = Dashboard(lambda: model.snapshot(119.5), lambda: not asked.append(1), TOKEN, names=["Node7"])
    yield opened
    opened.close()


def ask(
    dashboard: Dashboard, path: str, method: str = "GET", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", dashboard.port, timeout=20)
    try:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, headers={"Host": f"127.0.0.1:{dashboard.port}", **names})
        answer = connection.getresponse()
        return answer.status, {key.lower(): value for key, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


@pytest.mark.parametrize("path", ["/", "/state", "/events", "/metrics", "/x" * 16, "/" + "t" * 31])
def test_nothing_without_the_token(dashboard: Dashboard, path: str) -> None:
    assert ask(dashboard, path)[0] == 401
    assert ask(dashboard, path, Cookie=f"horovod-{dashboard.port}=wrong")[0] == 401
    assert ask(dashboard, path, Authorization="Bearer wrong")[0] == 401


def test_the_token_becomes_a_cookie(dashboard: Dashboard) -> None:
    assert dashboard.url == f"http://127.0.0.1:{dashboard.port}/{TOKEN}"
    status, headers, _ = ask(dashboard, f"/{TOKEN}")
    assert status == 303 and headers["location"] == "/"
    cookie = headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie
    status, headers, body = ask(dashboard, "/", Cookie=cookie.partition(";")[0])
    assert status == 200 and body == page()
    assert headers["referrer-policy"] == "no-referrer" and headers["x-frame-options"] == "DENY"
    assert TOKEN.encode() not in body
    rules = headers["content-security-policy"]
    assert "default-src 'self'" in rules and "unsafe" not in rules and "frame-ancestors 'none'" in rules


def test_the_page_asks_for_nothing_elsewhere() -> None:
    text = page().decode().replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?://|//cdn|@import|url\(|src=|innerHTML", text)


def test_a_foreign_name_is_refused(dashboard: Dashboard) -> None:
    """A page elsewhere may let its own name lead to this machine."""
    for name in ("evil.example", "127.0.0.1.evil.example", "[127.0.0.1]", "::1", "[::1", "[localhost]", ""):
        for host in (name, f"{name}:{dashboard.port}"):
            assert ask(dashboard, f"/{TOKEN}/state", Host=host)[0] == 421, host
    for host in ("localhost", "127.0.0.1:1", "127.0.0.1:x", f"127.0.0.1:{dashboard.port}:1"):
        assert ask(dashboard, f"/{TOKEN}/state", Host=host)[0] == 421, host


@pytest.mark.parametrize("name", ["localhost", "LocalHost", "node7", "NODE7", "10.1.2.3", "[::1]", "[FD::1]"])
def test_addresses_and_own_names_are_let_in(dashboard: Dashboard, name: str) -> None:
    """An address can't be made to lead elsewhere, and a machine may have many."""
    assert ask(dashboard, f"/{TOKEN}/state", Host=f"{name}:{dashboard.port}")[0] == 200


def test_state_and_metrics(dashboard: Dashboard) -> None:
    _, headers, body = ask(dashboard, f"/{TOKEN}/state")
    assert json.loads(body)["ranks"][1]["steps"] == 90 and "access-control-allow-origin" not in headers
    status, headers, body = ask(dashboard, "/metrics", Authorization=f"Bearer {TOKEN}")
    assert status == 200 and b"horovod_steps_total" in body and "version=0.0.4" in headers["content-type"]
    assert ask(dashboard, f"/{TOKEN}/../etc/passwd")[0] == 404


def test_stacks_need_more_than_a_form(dashboard: Dashboard, asked: list[int]) -> None:
    assert ask(dashboard, "/stacks", "POST")[0] == 401
    assert ask(dashboard, f"/{TOKEN}/stacks", "POST")[0] == 403
    assert ask(dashboard, f"/{TOKEN}/stacks", "GET")[0] == 404
    assert asked == []
    assert ask(dashboard, f"/{TOKEN}/stacks", "POST", X_Horovod="stacks")[0] == 202
    assert asked == [1]
    assert ask(dashboard, f"/{TOKEN}/state", "PUT")[0] == 501


def test_events_come_every_second(dashboard: Dashboard) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", dashboard.port, timeout=20)
    connection.request("GET", f"/{TOKEN}/events", headers={"Host": f"127.0.0.1:{dashboard.port}"})
    answer = connection.getresponse()
    assert answer.getheader("Content-Type") == "text/event-stream"
    for _ in range(2):
        line = answer.readline()
        assert line.startswith(b"data: ") and json.loads(line[6:])["job"]["np"] == 2
        assert answer.readline() == b"\n"
    connection.close()


def test_clients_that_stand_still_keep_nobody_else_out(dashboard: Dashboard) -> None:
    still = [socket.create_connection(("127.0.0.1", dashboard.port)) for _ in range(3 * CLIENTS)]
    assert ask(dashboard, f"/{TOKEN}/state")[0] == 200  # a connection without a request takes no place
    for each in still:
        each.close()
    readers: list[Any] = []
    for _ in range(CLIENTS):
        reader = socket.create_connection(("127.0.0.1", dashboard.port))
        request = f"GET /{TOKEN}/events HTTP/1.1\r\nHost: 127.0.0.1:{dashboard.port}\r\n\r\n"
        reader.sendall(request.encode())
        assert reader.recv(10)
        readers.append(reader)
    assert ask(dashboard, f"/{TOKEN}/state")[0] == 503
    for reader in readers:
        reader.close()
    deadline = time.monotonic() + 30
    while ask(dashboard, f"/{TOKEN}/state")[0] != 200:
        assert time.monotonic() < deadline


def test_connections_without_the_token_are_not_taken_without_end(dashboard: Dashboard) -> None:
    before = threading.active_count()
    still = [socket.create_connection(("127.0.0.1", dashboard.port)) for _ in range(CONNECTIONS + 20)]
    peak = 0
    while not select.select(still[-20:], [], [], 0.01)[0]:  # until one is closed
        peak = max(peak, threading.active_count())
    assert peak <= before + CONNECTIONS
    for each in still:
        each.close()
    deadline = time.monotonic() + 30
    while threading.active_count() > before:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert ask(dashboard, f"/{TOKEN}/state")[0] == 200


def test_the_report_has_its_data_and_nothing_gets_out_of_it() -> None:
    snapshot = running().snapshot(119.5)
    snapshot["job"]["command"] = ["</script><script>alert(1)</script>"]
    text = report(snapshot).decode()
    assert "<script>alert" not in text
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert data is not None and json.loads(data[1])["job"]["command"] == snapshot["job"]["command"]
