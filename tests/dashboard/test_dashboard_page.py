"""The page in a real browser: of a real job, and of one with many ranks."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import psutil
import pytest
from chromium import Chromium, why_not
from runner_util import Launcher
from test_dashboard_model import running

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


def test_a_job_and_a_killed_rank(tmp_path: Path) -> None:
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
        victim = next(p for p in launcher.family() if p.name() == "sleep")
        psutil.Process(victim.pid).kill()
        page.wait_for(f"{count('failed')} == 1", seconds=20)
        assert "signal 9" in page.value("document.querySelector('.rank.failed').textContent")
        launcher.process.send_signal(signal.SIGTERM)
        page.wait_for("document.getElementById('state').textContent.includes('ended with code')", seconds=20)
        assert page.messages == []
        assert all(address.startswith((url.rpartition("/")[0], "data:")) for address in page.requests)
    assert launcher.finish().returncode == 143


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
        assert page.value("document.querySelectorAll('img').length") == 0
        assert page.value("document.querySelectorAll('svg path').length") == 3
        assert page.value("document.documentElement.scrollWidth <= innerWidth")
        assert page.messages == []
