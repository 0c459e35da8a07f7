"""The start of a job on several machines: asks the hosts, and gives each its plan."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from horovod.runner.agent.frames import Frame, Kind
from horovod.runner.host_survey.participant import SurveyRequest, keepalive_purpose
from horovod.runner.host_survey.survey import HostSurvey, Stage
from horovod.runner.launcher.agent_process import AgentProcess
from horovod.runner.launcher.host_keepalive import HostKeepalives
from horovod.runner.launcher.rendezvous import Rendezvous
from horovod.runner.plan import environment
from horovod.runner.plan.job_plan import Cluster, HostPlan, JobPlan

ALL_PROBLEMS_WITHIN = 3.0  # seconds after the first host that can't take part, to hear about others
_ROUND_LIMIT = 10.0  # seconds for trying addresses, of which there are two rounds


@dataclass(eq=False)
class SurveyCoordinator:
    """From started agents to hosts that know each other.

    ``say(text)`` tells the user at once about each host that can't take part. When all have
    answered, ``send_plan(agent, plan)`` is called for each host, or ``failed(text)`` once.
    """

    plan: JobPlan
    cluster: Cluster
    rendezvous: Rendezvous
    keepalives: HostKeepalives
    say: Callable[[str], None]
    send_plan: Callable[[AgentProcess, HostPlan], None]
    failed: Callable[[str], None]

    def __post_init__(self) -> None:
        self._agents: list[AgentProcess] = []
        self._survey = HostSurvey([host.host for host in self.plan.hosts])
        self._told: set[str] = set()  # hosts whose problem has been said
        # When those that have not answered are not waited for any more
        self.due: float | None = None

    @property
    def over(self) -> bool:
        return self._survey.stage in (Stage.READY, Stage.FAILED)

    def begin(self, agents: Sequence[AgentProcess]) -> None:
        """Asks all agents, even those that are still starting."""
        self._agents = list(agents)
        for agent in agents:
            self.rendezvous.accept(keepalive_purpose(agent.host), partial(self.keepalives.add, agent.host))
            self._ask(agent)

    def replace(self, agent: AgentProcess, other: AgentProcess) -> None:
        """An agent has failed before it got anywhere, and another one takes its place."""
        self._agents[self._agents.index(agent)] = other
        self._ask(other)

    def _ask(self, agent: AgentProcess) -> None:
        request = SurveyRequest(
            host=agent.host,
            key=self.cluster.key.hex(),
            interfaces=list(self.cluster.interfaces),
            launcher=self.rendezvous.endpoints,
            remote=agent.remote,
            seconds=min(_ROUND_LIMIT, self.plan.start_timeout / 3),
            host_timeout=self.plan.host_timeout,
        )
        agent.writer.put(Kind.SURVEY, request.to_json())
        agent.writer.flush()

    def on_report(self, agent: AgentProcess, frame: Frame) -> None:
        """LISTENING or REACHED has arrived."""
        data = json.loads(frame.payload)
        if "problem" in data:
            self.on_problem(agent.host, data["problem"])
        elif frame.kind is Kind.LISTENING:
            self._advance(lambda: self._survey.listening(agent.host, data))
        else:
            self._advance(lambda: self._survey.reached(agent.host, data))

    def on_problem(self, host: str, text: str) -> None:
        """A host can't take part.

        Others may have problems too, which the user wants to see at once.
        """
        if self.due is None and not self.over:
            self.due = time.monotonic() + ALL_PROBLEMS_WITHIN
        self._advance(lambda: self._survey.failed(host, text))

    def give_up(self, why: str) -> None:
        """Time is up for those that have not answered."""
        self._advance(lambda: self._survey.give_up(why))

    def _advance(self, change: Callable[[], None]) -> None:
        if self.over:
            return
        survey, before = self._survey, self._survey.stage
        change()
        for host, text in survey.problems.items():
            if host not in self._told:
                self._told.add(host)
                self.say(f"host {host}: {text}")
        if survey.stage is before:
            return
        if survey.stage is Stage.REACH:
            for agent in self._agents:
                agent.writer.put(Kind.PEERS, json.dumps(survey.peers_of(agent.host)))
        elif survey.stage is Stage.READY:
            self.due = None
            self.rendezvous.listen_only_on(survey.launcher_addresses())
            for agent, plan in zip(self._agents, self.plan.hosts, strict=True):
                network = survey.network(agent.host)
                self.send_plan(agent, replace(plan, env=environment.placed(plan.env, network)))
        else:
            self.due = None
            count = len(survey.problems)
            self.failed(f"the job could not be started because of {count} host{'s' if count > 1 else ''}")
