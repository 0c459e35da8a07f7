"""The start of a job on several machines: carries what the hosts tell to the assembly, and on to the plan."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from horovod.runner import environment
from horovod.runner.assembly import Assembly, Stage
from horovod.runner.frames import Frame, Kind
from horovod.runner.links import Link
from horovod.runner.plan import Cluster, HostPlan, JobPlan
from horovod.runner.probe import ProbeRequest, watch_purpose
from horovod.runner.rendezvous import Rendezvous
from horovod.runner.watches import Watches

ALL_PROBLEMS_WITHIN = 3.0  # seconds after the first host that can't take part, to hear about others
_ROUND_LIMIT = 10.0  # seconds for trying addresses, of which there are two rounds


class Gathering:
    """From started agents to hosts that know each other.

    ``say(text)`` tells the user at once about each host that can't take part. When all have answered,
    ``send_plan(link, plan)`` is called for each host, or ``failed(text)`` once.
    """

    def __init__(
        self,
        plan: JobPlan,
        cluster: Cluster,
        rendezvous: Rendezvous,
        watches: Watches,
        say: Callable[[str], None],
        send_plan: Callable[[Link, HostPlan], None],
        failed: Callable[[str], None],
    ) -> None:
        self._plan = plan
        self._cluster = cluster
        self._rendezvous = rendezvous
        self._watches = watches
        self._say = say
        self._send_plan = send_plan
        self._failed = failed
        self._links: list[Link] = []
        self._assembly = Assembly([host.host for host in plan.hosts])
        self._told: set[str] = set()  # hosts whose problem has been said
        self.due: float | None = None  # when those that have not answered are not waited for any more

    @property
    def over(self) -> bool:
        return self._assembly.stage in (Stage.READY, Stage.FAILED)

    def begin(self, links: Sequence[Link]) -> None:
        """Asks all agents, which may still be on their way to life."""
        self._links = list(links)
        for link in links:
            self._rendezvous.accept(watch_purpose(link.host), partial(self._watches.add, link.host))
            self._ask(link)

    def replace(self, link: Link, other: Link) -> None:
        """A link has failed before it got anywhere, and another one takes its place."""
        self._links[self._links.index(link)] = other
        self._ask(other)

    def _ask(self, link: Link) -> None:
        request = ProbeRequest(
            host=link.host,
            key=self._cluster.key.hex(),
            interfaces=list(self._cluster.interfaces),
            launcher=self._rendezvous.endpoints,
            remote=link.remote,
            seconds=min(_ROUND_LIMIT, self._plan.start_timeout / 3),
        )
        link.writer.put(Kind.PROBE, request.to_json())
        link.writer.flush()

    def on_report(self, link: Link, frame: Frame) -> None:
        """LISTENING or REACHED has arrived."""
        data = json.loads(frame.payload)
        if "problem" in data:
            self.on_problem(link.host, data["problem"])
        elif frame.kind is Kind.LISTENING:
            self._advance(lambda: self._assembly.listening(link.host, data))
        else:
            self._advance(lambda: self._assembly.reached(link.host, data))

    def on_problem(self, host: str, text: str) -> None:
        """A host can't take part. Others may have problems too, which the user wants to see at once."""
        if self.due is None and not self.over:
            self.due = time.monotonic() + ALL_PROBLEMS_WITHIN
        self._advance(lambda: self._assembly.failed(host, text))

    def give_up(self, why: str) -> None:
        """Time is up for those that have not answered."""
        self._advance(lambda: self._assembly.give_up(why))

    def _advance(self, change: Callable[[], None]) -> None:
        if self.over:
            return
        assembly, before = self._assembly, self._assembly.stage
        change()
        for host, text in assembly.problems.items():
            if host not in self._told:
                self._told.add(host)
                self._say(f"host {host}: {text}")
        if assembly.stage is before:
            return
        if assembly.stage is Stage.REACH:
            for link in self._links:
                link.writer.put(Kind.PEERS, json.dumps(assembly.peers_of(link.host)))
        elif assembly.stage is Stage.READY:
            self.due = None
            self._rendezvous.listen_only_on(assembly.launcher_addresses())
            for link, plan in zip(self._links, self._plan.hosts, strict=True):
                network = assembly.network(link.host)
                self._send_plan(link, replace(plan, env=environment.placed(plan.env, network)))
        else:
            self.due = None
            count = len(assembly.problems)
            self._failed(f"the job could not be started because of {count} host{'s' if count > 1 else ''}")
