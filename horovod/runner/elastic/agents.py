"""The agents of an elastic job, which come and go with the hosts."""

from __future__ import annotations

import math
import select
import threading
import time
from abc import abstractmethod
from collections import deque
from dataclasses import dataclass, field
from functools import partial

from horovod._net.addresses import LOOPBACK, Endpoint, is_local, own_addresses
from horovod._net.frames import Message
from horovod.runner import ssh
from horovod.runner.agent.frames import Kind
from horovod.runner.elastic.plan import ElasticPlan
from horovod.runner.elastic.rendezvous import ElasticRendezvous
from horovod.runner.host_survey.participant import SurveyRequest, keepalive_purpose
from horovod.runner.launcher.agent_process import AgentProcess
from horovod.runner.launcher.supervision import KILL_AFTER, Supervision, Watch
from horovod.runner.plan.hosts import HostInfo
from horovod.runner.plan.job_plan import HostPlan

_ATTEMPTS = 5  # at connecting to a machine that is too busy to answer
_CATCH_UP = 2.0  # seconds for reading what agents have said while nobody took the output
_KNOWN = ("localhost", LOOPBACK, "::1")  # to be this machine, without asking anybody


@dataclass(eq=False)
class _Link:
    """What is known about the agent of a host."""

    agent: AgentProcess
    deadline: float  # to be ready
    ready: bool = False
    asked: bool = False  # to end
    addresses: list[str] = field(default_factory=list)  # of another machine, where it can be reached


class ElasticAgents(Supervision):
    """Connects to hosts, one by one, and notices their ends. Tells the job by three methods."""

    def __init__(self, plan: ElasticPlan, server: ElasticRendezvous, watch: Watch) -> None:
        super().__init__(plan.manner, watch)
        self._plan = plan
        self._server = server
        self._links: dict[str, _Link] = {}  # by host; those that are closed are gone from here
        self._local: dict[str, bool] = dict.fromkeys(_KNOWN, True)  # by name
        self._lookups: deque[dict[str, bool]] = deque()
        self._looking_up = False
        self._newest: list[HostInfo] = []  # what discovery has said last
        self._own: list[str] = []  # where other machines reach this one, once there are any
        self._unstarted: deque[tuple[str, str]] = deque()  # hosts without an agent, and why
        self._pythons: dict[str, str] = {}
        self._full_at = -math.inf  # when the console last took nothing more

    @abstractmethod
    def _hosts_known(self, hosts: list[HostInfo]) -> None:
        """These hosts there are, and each is known to be this machine or not."""

    @abstractmethod
    def _agent_ready(self, host: str, boot_id: str) -> None:
        """Workers can be started."""

    @abstractmethod
    def _agent_lost(self, host: str, why: str, asked: bool) -> None:
        """An agent has ended; ``asked``: it was to."""

    # -- which machine a name means --

    def _take_hosts(self, hosts: list[HostInfo]) -> None:
        """Looks names up that are new; an answer may take seconds, so not in this thread."""
        self._newest = hosts
        self._pythons.update({host.hostname: host.python for host in hosts if host.python is not None})
        new = [host.hostname for host in hosts if host.hostname not in self._local]
        if not new:
            self._hosts_known(hosts)
            return
        if self._looking_up:
            return  # when that has been answered

        def look_up() -> None:
            self._lookups.append({name: is_local(name) for name in new})
            self._signals.wake()

        self._looking_up = True
        threading.Thread(target=look_up, name="hvd-lookup", daemon=True).start()

    def _is_remote(self, host: str) -> bool:
        return not self._local[host]

    def _python(self, host: str) -> str:
        return self._pythons.get(host) or super()._python(host)

    # -- coming --

    def _connect(self, host: str, attempt: int = 1) -> None:
        try:
            if self._is_remote(host):
                self._listen_for_others()
            agent = self._start_agent(host, set(), attempt)
        except (OSError, ValueError) as error:
            # Not now: whoever has decided to connect is not done yet.
            self._links.pop(host, None)
            self._unstarted.append((host, f"its agent could not be started: {error}"))
            return
        self._agents.append(agent)
        self._links[host] = _Link(agent, time.monotonic() + self._plan.manner.start_timeout)
        if agent.remote:
            self._server.accept(keepalive_purpose(host), partial(self._keepalives.add, host))
            request = SurveyRequest(
                host=host,
                key=self._plan.key.hex(),
                interfaces=list(self._plan.interfaces),
                launcher=self._server.endpoints,
                remote=True,
                seconds=self._plan.manner.start_timeout / 3,
                host_timeout=self._plan.manner.host_timeout,
            )
            agent.writer.put(Kind.SURVEY, request.to_json())
        else:
            self._send_plan(agent, self._server.endpoints[0])
        agent.writer.flush()

    def _listen_for_others(self) -> None:
        """The rendezvous can be reached from other machines from now on. OSError, ValueError."""
        if not self._own:
            own = [entry.address for entry in own_addresses(list(self._plan.interfaces))]
            self._server.listen_also_on(own)
            self._own = own

    def _send_plan(self, agent: AgentProcess, endpoint: Endpoint) -> None:
        plan = HostPlan(
            host=agent.host,
            directory=self._plan.directory,
            command=self._plan.command,
            env=self._plan.environment(agent.host, agent.remote, endpoint),
            workers=[],
            resolve=True,
            task=self._plan.payload is not None,
            term_grace=self._plan.manner.term_grace,
            stays=True,
            timeline=self._plan.timeline if agent.remote else "",
            preemption_grace=self._plan.preemption_grace,
        )
        agent.writer.put_pieces(Kind.PAYLOAD, self._plan.payload or b"")
        agent.writer.put(Kind.PLAN, plan.to_json())
        agent.writer.flush()

    def _on_listening(self, agent: AgentProcess, data: Message) -> None:
        link = self._links.get(agent.host)
        if link is None or link.agent is not agent or link.ready:
            return
        if "problem" in data:
            self._lost(agent, str(data["problem"]))
            return
        link.addresses = [str(address) for _, address, _ in data["offered"]]
        address, port = data["launcher"]
        self._verbose(f"{agent.host} takes part with {', '.join(link.addresses)}")
        self._send_plan(agent, (str(address), int(port)))
        self._ready(agent.host, link)

    def _ready(self, host: str, link: _Link) -> None:
        link.ready = True
        self._agent_ready(host, link.agent.boot_id)

    def _addresses(self, host: str) -> list[str]:
        """Where other machines reach the workers of a host."""
        return list(self._links[host].addresses if self._is_remote(host) else self._own)

    # -- being there --

    def _send(self, host: str, kind: Kind, payload: str, number: int = -1) -> None:
        link = self._links.get(host)
        if link is not None and not link.agent.closed:
            link.agent.writer.put(kind, payload, number)
            link.agent.writer.flush()

    def _behind(self, now: float) -> bool:
        """Whether agents have said what was not heard, as nobody takes the output: a pager, perhaps."""
        if self._console.full():
            self._full_at = now
        if now >= self._full_at + _CATCH_UP:
            return False
        poll = select.poll()
        for link in self._links.values():
            if not link.agent.closed:
                poll.register(link.agent.reports, select.POLLIN)
        return bool(poll.poll(0))

    def _agents_due(self) -> float | None:
        if self._unstarted:
            return 0.0
        soon = time.monotonic() + 0.1
        due = [max(link.deadline, soon) for link in self._links.values() if not link.ready]
        return min(due, default=None)

    def _look_after_agents(self, now: float) -> None:
        while self._lookups:
            self._local.update(self._lookups.popleft())
            self._looking_up = False
            self._take_hosts(self._newest)
        while self._unstarted:
            self._agent_lost(*self._unstarted.popleft(), asked=False)
        for host, link in list(self._links.items()):
            agent = link.agent
            if agent.closed:  # in order: it has said that nothing is left
                self._gone(host, link, "", link.asked or agent.done)
            elif not link.ready and agent.greeted and not agent.remote:
                self._ready(host, link)
            elif not link.ready and now >= link.deadline and not self._stopping and not self._behind(now):
                seconds = f"{self._plan.manner.start_timeout:g} s"
                self._lost(
                    agent,
                    f"no answer within {seconds}: it is down, or a firewall drops what is sent to it; if it "
                    "is just slow, raise --start-timeout",
                )
        for agent in list(self._agents):
            # A job may see thousands of agents.
            if agent.closed and agent.process.poll() is not None and not self._stopping:
                agent.close()
                self._agents.remove(agent)

    # -- going --

    def _release(self, host: str) -> None:
        """A host is not used any more."""
        link = self._links[host]
        link.asked = True
        self._send(host, Kind.STOP, str(KILL_AFTER))

    def _on_lost(self, agent: AgentProcess, why: str, code: int) -> None:
        link = self._links.get(agent.host)
        if link is None or link.agent is not agent:
            return
        busy = agent.remote and not agent.greeted and not why and ssh.dropped(code, agent.complaints)
        if busy and agent.attempt < _ATTEMPTS and not self._stopping:
            self._connect(agent.host, agent.attempt + 1)
            return
        if not why and agent.remote and agent.greeted:
            why = ssh.ended(code, agent.complaints)
        self._gone(agent.host, link, why or self._explain(agent, code), link.asked)

    def _gone(self, host: str, link: _Link, why: str, asked: bool) -> None:
        del self._links[host]
        self._keepalives.drop(host)
        if link.agent.remote:
            self._server.forget(keepalive_purpose(host))
        self._agent_lost(host, why, asked)
