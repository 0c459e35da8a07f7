"""A fresh machine gets the programs that tests need, whichever those are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from util_packages import why_not


def fake_apt(directory: Path, monkeypatch: pytest.MonkeyPatch, installs: bool) -> None:
    """An apt-get that makes the program `strange` (of the package strange-bin), or nothing."""
    program = directory / "strange"
    making = f"[ $1 = install ] && [ $4 = strange-bin ] && touch {program} && chmod +x {program}"
    apt = directory / "apt-get"
    apt.write_text(f"#!/bin/sh\n{making if installs else 'exit 1'}\n")
    apt.chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")
    monkeypatch.setattr(os, "geteuid", lambda: 0)


def test_missing_program_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_apt(tmp_path, monkeypatch, installs=True)
    assert why_not({"sh": "dash", "strange": "strange-bin"}) is None


def test_what_cannot_be_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_apt(tmp_path, monkeypatch, installs=False)
    reason = why_not({"sh": "dash", "strange": "strange-bin"})
    assert reason == "needs other programs: apt-get install strange-bin"
