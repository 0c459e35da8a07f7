"""A job of a fixed size: one that loses a rank ends. Decides when it is over and how it ended."""

from __future__ import annotations

import time
from dataclasses import dataclass

from horovod.runner import ssh
from horovod.runner.agent.frames import Frame, Kind
from horovod.runner.launcher import failure
from horovod.runner.launcher.agent_process import AgentProcess
from horovod.runner.launcher.output import RankOutput
from horovod.runner.launcher.rendezvous import Rendezvous
from horovod.runner.launcher.supervision import Manner, Supervision, Watch
from horovod.runner.launcher.survey_coordinator import SurveyCoordinator
from horovod.runner.plan.job_plan import HostPlan, JobPlan

_ENDS_TOLD = 16  # failures of ranks that get a line each; those of hundreds are told together
_ATTEMPTS = 5  # at connecting to a machine that is too busy to answer


@dataclass
class _Failure:
    rank: int
    host: str
    code: int
    what: str


class Job(Supervision):
    """One run of a plan."""

    def __init__(self, plan: JobPlan, rendezvous: Rendezvous, watch: Watch) -> None:
        super().__init__(
            Manner(
                plan.grace_period,
                plan.term_grace,
                plan.start_timeout,
                plan.host_timeout,
                plan.verbose,
                plan.cluster,
                plan.parent,
            ),
            watch,
        )
        self._plan = plan
        self._rendezvous = rendezvous
        self._output = RankOutput(self._console, plan.size, plan.output_directory, plan.timestamps)
        self._survey: SurveyCoordinator | None = None
        if plan.cluster is not None:
            self._survey = SurveyCoordinator(
                plan,
                plan.cluster,
                rendezvous,
                self._keepalives,
                say=lambda text: self._say("stderr", text),
                send_plan=self._send_plan,
                failed=self._could_not_start,
            )
        self.results: dict[int, bytearray] = {}  # by rank, what workers that run a function wrote
        self._running = {worker.rank for host in plan.hosts for worker in host.workers}
        self._started_by: float | None = None  # the time until which all ranks must have been started
        self._failures: list[_Failure] = []  # in the order of their arrival, without our own doing
        self._ends_told = 0
        self._ends: dict[tuple[str, str], list[int]] = {}  # how ranks failed that were not told of one by one
        self._host_lost = False

    def _over(self) -> bool:
        return all(agent.closed for agent in self._agents)

    def _finish(self) -> None:
        for agent in self._agents:
            for rank in sorted(self._running & self._ranks_of(agent)):
                self._ended_unseen(agent, rank, "was ended with the job")
        self._output.close()
        self._report()

    # -- agents --

    def _begin(self) -> None:
        self._started_by = time.monotonic() + self._plan.start_timeout
        for host in self._plan.hosts:
            agent = self._start(host)
            self._agents.append(agent)
            if self._survey is None:
                self._send_plan(agent, host)
        if self._survey is not None:
            self._survey.begin(self._agents)

    def _start(self, host: HostPlan, attempt: int = 1) -> AgentProcess:
        return self._start_agent(host.host, {worker.rank for worker in host.workers}, attempt)

    def _try_again(self, agent: AgentProcess, code: int) -> bool:
        """Connects once more to a host that was too busy; False if that is not what happened."""
        assert self._survey is not None
        busy = agent.remote and not agent.greeted and ssh.dropped(code, agent.complaints)
        if not busy or agent.attempt >= _ATTEMPTS or self._stopping:
            return False
        index = self._agents.index(agent)
        agent.close()
        self._agents[index] = self._start(self._plan.hosts[index], agent.attempt + 1)
        self._survey.replace(agent, self._agents[index])
        return True

    def _send_plan(self, agent: AgentProcess, host: HostPlan) -> None:
        if "HOROVOD_ADDRESSES" in host.env:
            self._verbose(f"{host.host} takes part with {host.env['HOROVOD_ADDRESSES']}")
        agent.writer.put_pieces(Kind.PAYLOAD, self._plan.payload)
        agent.writer.put(Kind.PLAN, host.to_json())
        agent.writer.flush()

    def _could_not_start(self, text: str) -> None:
        self._trouble = (text, 1)
        self._stop(0.0)

    def _stop(self, kill_after: float) -> None:
        self._started_by = None
        super()._stop(kill_after)

    def _on_lost(self, agent: AgentProcess, why: str, code: int) -> None:
        if self._survey is not None and not self._survey.over and self._try_again(agent, code):
            return
        self._keepalives.drop(agent.host)
        for rank in sorted(self._running & self._ranks_of(agent)):
            self._running.discard(rank)
            self._ended_unseen(agent, rank, "was lost with its agent")
            self._rendezvous.rank_failed(rank, f"rank {rank} on {agent.host} was lost with its agent")
        if self._survey is not None and not self._survey.over:
            self._survey.on_problem(agent.host, why or self._explain(agent, code))
            return
        if agent.remote:
            self._lost_host(agent, why or ssh.ended(code, agent.complaints))
            return
        if self._trouble is None:
            text = f"the agent on {agent.host} (process {agent.process.pid}) {why or failure.describe(code)}"
            self._trouble = (text + "; the job was ended", failure.exit_code(code) or 1)
        self._stop(0.0)

    def _lost_host(self, agent: AgentProcess, why: str) -> None:
        """The ranks elsewhere find out by themselves, and get the time to say so."""
        self._host_lost = True
        self._log.add("host_lost", host=agent.host, ranks=sorted(self._ranks_of(agent)), reason=why)
        if self._trouble is None:
            text = f"the connection to {agent.host} was lost: {why}"
            self._say("stdout", text)
            self._trouble = (text + "; the job was ended", 1)
        if not self._stopping and self._stop_at is None:
            self._stop_at = time.monotonic() + self._plan.grace_period

    def _ranks_of(self, agent: AgentProcess) -> set[int]:
        host = self._plan.hosts[self._agents.index(agent)]
        return {worker.rank for worker in host.workers}

    # -- events --

    def _on_frame(self, agent: AgentProcess, frame: Frame) -> None:
        if frame.kind is Kind.STDOUT:
            self._output.feed(frame.rank, "stdout", frame.payload)
        elif frame.kind is Kind.STDERR:
            self._output.feed(frame.rank, "stderr", frame.payload)
        elif frame.kind is Kind.STARTED:
            self._verbose(f"rank {frame.rank} on {agent.host} is process {frame.payload.decode()}")
            self._log.add("rank_started", rank=frame.rank, host=agent.host, pid=int(frame.payload))
            self._started(agent, frame.rank)
        elif frame.kind is Kind.REFUSED:
            self._started(agent, frame.rank)
            self._on_refused(agent, frame)
        elif frame.kind in (Kind.LISTENING, Kind.REACHED):
            if self._survey is not None:
                self._survey.on_report(agent, frame)
        elif frame.kind is Kind.RESULT:
            self.results.setdefault(frame.rank, bytearray()).extend(frame.payload)
        elif frame.kind is Kind.TIMELINE:
            self._keep_recorded(agent, frame.payload)
        elif frame.kind is Kind.EXIT:
            code = int(frame.payload)
            self._on_exit(agent, frame.rank, code, failure.describe(code, ours=self._stopping))
        elif frame.kind is Kind.DONE:
            self._on_done(agent, frame)

    def _started(self, agent: AgentProcess, rank: int) -> None:
        agent.starting.discard(rank)
        if not any(other.starting for other in self._agents):
            self._started_by = None

    def _on_refused(self, agent: AgentProcess, frame: Frame) -> None:
        code, _, reason = frame.payload.decode().partition(" ")
        self._on_exit(agent, frame.rank, int(code), f"could not be started: {reason}")

    def _on_exit(self, agent: AgentProcess, rank: int, code: int, what: str) -> None:
        self._running.discard(rank)
        self._verbose(f"rank {rank} on {agent.host} {what}")
        self._log.add("rank_exit", rank=rank, host=agent.host, code=code, what=what)
        if code == 0:
            # No matter, unless others are still waiting for it to connect.
            text = f"rank {rank} on {agent.host} exited with code 0 while others wait in hvd.init()"
            self._rendezvous.rank_failed(rank, text)
            return
        self._rendezvous.rank_failed(rank, f"rank {rank} on {agent.host} {what}")
        if self._stopping or self._signalled is not None:
            return  # our own doing
        self._ends_told += 1
        if self._ends_told <= _ENDS_TOLD:
            self._say("stdout", f"rank {rank} on {agent.host} {what}")
        else:
            self._ends.setdefault((agent.host, what), []).append(rank)
        if self._trouble is not None:
            return  # a consequence
        self._failures.append(_Failure(rank, agent.host, code, what))
        if len(self._failures) == 1:
            self._stop_at = time.monotonic() + self._plan.grace_period
            if self._running:
                rest = failure.ranks(sorted(self._running))
                grace = f"{self._plan.grace_period:g} s"
                self._say("stdout", f"terminating {rest} in {grace} unless finished by then")

    def _ended_unseen(self, agent: AgentProcess, rank: int, what: str) -> None:
        if rank not in agent.starting:
            self._log.add("rank_exit", rank=rank, host=agent.host, code=None, what=what)

    # -- times --

    def _next_due(self) -> float | None:
        times = [super()._next_due(), self._started_by, None if self._survey is None else self._survey.due]
        return min((at for at in times if at is not None), default=None)

    def _check_deadlines(self, now: float) -> None:
        survey = self._survey
        if survey is not None and survey.due is not None and now >= survey.due:
            survey.give_up("it had not answered when another host failed")
        if self._started_by is not None and now >= self._started_by and survey is not None:
            survey.give_up(
                f"no answer within {self._plan.start_timeout:g} s: it is down, or a firewall drops what is "
                "sent to it; if it is just slow, raise --start-timeout"
            )
        if self._started_by is not None and now >= self._started_by:
            late = [agent.host for agent in self._agents if agent.starting]
            self._trouble = (
                f"starting processes on {', '.join(late)} took longer than {self._plan.start_timeout:g} s; "
                "if that host is just slow, raise --start-timeout",
                1,
            )
            self._stop(1.0)
        super()._check_deadlines(now)

    # -- the end --

    def _report(self) -> None:
        for (host, what), ranks in self._ends.items():
            several = ": each" if len(ranks) > 1 else ""
            self._say("stdout", f"{failure.ranks(sorted(ranks))} on {host}{several} {what}")
        if self._signalled is not None:
            return
        first = self._cause()
        if first is not None:
            self._log.add("failure", rank=first.rank, host=first.host, code=first.code, reason=first.what)
            text = failure.report(
                first.rank, first.host, first.what, first.code, self._output.tail(first.rank)
            )
            self._console.put("stderr", text.encode(errors="backslashreplace"))
        if self._trouble is not None:
            if first is None:
                self._log.add("failure", reason=self._trouble[0])
            self._say("stderr", self._trouble[0])

    def _cause(self) -> _Failure | None:
        """The failure that caused the others; none if the loss of a host has caused them all."""
        if not self._failures:
            return None
        ends = [(each.code, self._output.tail(each.rank)) for each in self._failures]
        if self._host_lost and all(failure.is_consequence(*end) for end in ends):
            return None
        return self._failures[failure.cause(ends)]

    def _exit_code(self) -> int:
        if self._signalled is not None:
            return 128 + self._signalled
        first = self._cause()
        if first is not None:
            return failure.exit_code(first.code)
        return 0 if self._trouble is None else self._trouble[1]
