"""The page in a real browser: of a real job, and of one with many ranks."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path

import psutil
import pytest
from chromium import Chromium, why_not
from runner_util import Launcher
from test_dashboard_jobs import Watched
from test_dashboard_model import running, summary
from util_lag import Lag

from horovod._figures.model import Model
from horovod.runner.dashboard.server import report

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


def url_of(launcher: Launcher) -> str:
    assert launcher.process.stderr is not None
    while line := launcher.process.stderr.readline().decode():
        found = re.search(r"dashboard: (http://\S+)", line)
        if found:
            return found[1]
    raise AssertionError("no dashboard was announced")


def count(state: str) -> str:
    return f"document.querySelectorAll('.rank.{state}').length"


def test_a_job_and_a_killed_rank(tmp_path: Path, lag: Lag) -> None:
    program = "echo up; exec sleep 100"
    flags = ["-np", "2", "--dashboard", "--grace-period", "60"]
    launcher = Launcher(*flags, "sh", "-c", program, env={"XDG_STATE_HOME": str(tmp_path / "state")})
    url = url_of(launcher)
    launcher.wait_for(2, "up")
    with Chromium(tmp_path / "profile") as page:
        page.open(url)
        page.wait_for(f"{count('running')} == 2")
        assert page.value("location.pathname") == "/"  # the token is not in the history
        assert "sleep 100" in page.value("document.getElementById('command').textContent")
        page.call("Page.reload")
        page.wait_for(f"document.readyState == 'complete' && {count('running')} == 2")
        victim = next(p for p in launcher.family() if p.name() == "sleep")
        killed = time.monotonic()
        psutil.Process(victim.pid).kill()
        page.wait_for(f"{count('failed')} == 1", seconds=20)
        print(f"red after {time.monotonic() - killed:.2f} s")
        assert time.monotonic() - killed < 2 + lag.allowance_since(killed)
        assert "signal 9" in page.value("document.querySelector('.rank.failed').textContent")
        launcher.process.send_signal(signal.SIGTERM)
        page.wait_for("document.getElementById('state').textContent.includes('ended with code')", seconds=20)
        assert page.messages == []
        assert all(address.startswith((url.rpartition("/")[0], "data:")) for address in page.requests)
    assert launcher.finish().returncode == 143


def test_the_button_for_stacks(tmp_path: Path) -> None:
    job = Watched(tmp_path)
    with Chromium(tmp_path / "profile") as page:
        page.open(job.url.geturl())
        page.wait_for("Number.parseFloat(document.getElementById('steps').textContent) > 0")
        page.value("document.getElementById('ask').click()")
        page.wait_for("document.getElementById('stacks').textContent.split('wait_here').length == 3")
        assert page.value("document.getElementById('asked').textContent") == "asked\n"
        assert page.messages == []
    job.launcher.process.send_signal(signal.SIGTERM)
    assert job.launcher.finish().returncode == 143


def test_the_report_of_a_job(tmp_path: Path) -> None:
    launcher = Launcher("-np", "2", "--report", str(tmp_path / "out/report.html"), "true")
    assert launcher.finish().returncode == 0
    with Chromium(tmp_path / "profile", dark=True) as page:
        page.open((tmp_path / "out/report.html").as_uri())
        page.wait_for(f"{count('ended')} == 2")
        assert page.value("document.getElementById('state').textContent") == "finished"
        assert page.value("document.getElementById('ask').hidden") is True
        assert page.value("getComputedStyle(document.body).backgroundColor") == "rgb(18, 22, 27)"
        assert page.messages == []


def test_figures_and_words_of_strangers(tmp_path: Path) -> None:
    """What a job says of itself is text, whatever it looks like."""
    snapshot = running().snapshot(119.5)
    snapshot["job"]["command"] = ["<img src=x onerror=alert(1)>"]
    (tmp_path / "report.html").write_bytes(report(snapshot))
    with Chromium(tmp_path / "profile") as page:
        page.open((tmp_path / "report.html").as_uri())
        page.wait_for(f"{count('running')} == 2")
        assert page.value("document.getElementById('steps').textContent").startswith("10.00")
        assert page.value("document.getElementById('user').textContent") == "loss 0.5"
        cells = page.value("[...document.querySelectorAll('.rank')].map(cell => cell.textContent)")
        assert "late 10 %" in cells[1] and "late" not in cells[0]
        assert page.value("document.querySelectorAll('img').length") == 0
        assert page.value("document.querySelectorAll('svg path').length") == 3
        assert page.value("document.documentElement.scrollWidth <= innerWidth")
        assert page.messages == []


@pytest.mark.parametrize(("dark", "width"), [(False, 1280), (True, 800)])
def test_sixty_four_ranks(tmp_path: Path, dark: bool, width: int) -> None:
    """All in sight of one page, whose words can be told from its ground; rank 0 says nothing any more."""
    model = Model()
    hosts = {f"host{host}": list(range(8 * host, 8 * host + 8)) for host in range(8)}
    model.event({"event": "job_start", "time": 100.0, "np": 64, "hosts": hosts, "command": ["train"]})
    for host, ranks in hosts.items():
        for rank in ranks:
            start = {"event": "rank_started", "time": 101.0, "rank": rank, "host": host, "pid": 40 + rank}
            model.event(start)
    for second in range(5):
        late = [0.3 * second if rank == 63 else 0.0 for rank in range(64)]
        every = [summary(rank, 10 * second, 0.2 * second, late[rank]) for rank in range(64)]
        model.summaries(110.0 + second, every, {})
    (tmp_path / "report.html").write_bytes(report(model.snapshot(119.0)))
    with Chromium(tmp_path / "profile", width=width, dark=dark) as page:
        page.open((tmp_path / "report.html").as_uri())
        page.wait_for(f"{count('running')} == 64")
        assert page.value("document.querySelectorAll('.host').length") == 8
        assert page.value("document.documentElement.scrollWidth <= innerWidth")
        inside = "[...document.querySelectorAll('.rank')].every(cell => cell.scrollWidth <= cell.clientWidth)"
        assert page.value(inside)
        assert "late 30 %" in page.value("[...document.querySelectorAll('.rank')].pop().textContent")
        assert page.value("document.getElementById('state').textContent") == "no news for 5.0 s"
        colors = "(s => [s.color, s.backgroundColor])(getComputedStyle(document.body))"
        words, ground = (sum(map(int, re.findall(r"\d+", each))) for each in page.value(colors))
        assert (words > ground + 300) if dark else (ground > words + 300)
        assert page.messages == []
