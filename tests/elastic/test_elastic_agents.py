"""Hosts on which no agent can be started: theirs is the loss, not the job's."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from runner_util import Launcher
from util_paths import ROOT

from horovod._bootstrap.rendezvous.server import RendezvousServer
from horovod.runner.agent.frames import Frame
from horovod.runner.elastic.agents import ElasticAgents
from horovod.runner.elastic.plan import ElasticPlan
from horovod.runner.elastic.state import Limits
from horovod.runner.launcher.agent_process import AgentProcess
from horovod.runner.launcher.event_log import EventLog
from horovod.runner.launcher.stack_requests import StackRequests
from horovod.runner.launcher.supervision import Manner, Watch
from horovod.runner.plan.hosts import HostInfo

WORLD = [sys.executable, str(Path(__file__).with_name("program_world.py"))]


class Agents(ElasticAgents):
    """Nothing can be started; ``lost`` is what the job hears."""

    def __init__(self, server: RendezvousServer) -> None:
        plan = ElasticPlan(Limits(1, 1), Manner(1.0, 1.0, 9.0), "/", ["true"], lambda *_: {}, b"k")
        super().__init__(plan, server, Watch(EventLog(), StackRequests(lambda: False)))
        self.lost: list[tuple[str, str, bool]] = []

    def _start_agent(self, host: str, starting: set[int], attempt: int = 1) -> AgentProcess:
        raise OSError(11, "Resource temporarily unavailable")

    def _agent_lost(self, host: str, why: str, asked: bool) -> None:
        self.lost.append((host, why, asked))

    def _hosts_known(self, hosts: list[HostInfo]) -> None: ...
    def _agent_ready(self, host: str, boot_id: str) -> None: ...
    def _begin(self) -> None: ...
    def _finish(self) -> None: ...
    def _on_frame(self, agent: AgentProcess, frame: Frame) -> None: ...

    def _over(self) -> bool:
        return True

    def _exit_code(self) -> int:
        return 0


def test_no_process_for_an_agent() -> None:
    """The job hears of it when it is done with what it has decided."""
    agents = Agents(RendezvousServer(b"k" * 32, []))
    agents._connect("localhost")
    assert agents.lost == [] and agents._agents_due() == 0.0
    agents._look_after_agents(time.monotonic())
    assert [(host, asked) for host, _, asked in agents.lost] == [("localhost", False)]
    assert "could not be started" in agents.lost[0][1] and "temporarily" in agents.lost[0][1]
    assert agents._agents_due() is None


def test_no_address_for_other_machines(tmp_path: Path) -> None:
    """Only the hosts elsewhere need one."""
    stop = tmp_path / "stop"
    stop.touch()
    hosts = ["-H", "localhost:1,host.invalid:1", "--network-interfaces", "nosuch0"]
    env = {"PYTHONPATH": str(ROOT)}
    job = Launcher("-np", "1", "--min-np", "1", *hosts, *WORLD, str(stop), env=env)
    result = job.finish(60)
    assert "host host.invalid: its agent could not be started: no interface named nosuch0" in result.stderr
    assert "1 rank on localhost:1" in result.stderr
    assert result.returncode == 0, result.stderr
