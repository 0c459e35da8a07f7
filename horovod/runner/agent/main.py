"""Runs the agent on this process's stdin and stdout."""

from __future__ import annotations

import os

from horovod._net import descriptors
from horovod.runner.agent.agent import Agent
from horovod.runner.agent.greeting import greeting
from horovod.runner.agent.guardian import under_guard


def main() -> None:
    """Returns when nothing of the job is left on this host."""
    guardian = under_guard()
    descriptors.raise_limit()
    # Private copies, so that a stray print or a child cannot disturb the frames.
    control, reports = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(2, 1)
    os.close(null)
    os.write(reports, greeting())
    Agent(control, reports, guardian).run()
