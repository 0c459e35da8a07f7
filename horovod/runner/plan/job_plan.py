"""What a job consists of, and what an agent starts on its host: data, JSON on the wire."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

from horovod.runner.ssh import SshOptions


@dataclass(frozen=True)
class Worker:
    """One rank: ``env`` is added to the environment of the host plan."""

    rank: int
    env: dict[str, str]


@dataclass(frozen=True)
class HostPlan:
    """Everything about one host. ``env`` is the whole environment and holds the job key: never log
    it.

    With ``resolve`` the agent looks for the command on its own machine. With ``task`` every worker
    gets the payload on one descriptor and writes its result to another: see task.py. In an elastic
    job it ``stays`` without workers, which come and go, and ``rank`` is the number of a worker.
    ``timeline``: the file after which the ranks' parts are named that the agent is to send back.
    Workers that are all there from the start may ``share_threads``: see runner/processors.py.
    """

    host: str
    directory: str
    command: list[str]
    env: dict[str, str]
    workers: list[Worker]
    resolve: bool = False
    task: bool = False
    term_grace: float = 5.0  # seconds from SIGTERM to SIGKILL if the agent itself gets the SIGTERM
    timeline: str = ""
    share_threads: bool = False
    stays: bool = False
    preemption_grace: float = 30.0  # seconds that a host goes on after a SIGTERM, if it ``stays``

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str | bytes) -> HostPlan:
        data = json.loads(text)
        data["workers"] = [Worker(**worker) for worker in data["workers"]]
        return HostPlan(**data)


@dataclass(frozen=True)
class Cluster:
    """What a job on several machines needs besides."""

    remote: frozenset[str]  # the hosts that are not this machine
    key: bytes = field(repr=False)
    ssh: SshOptions = field(default_factory=SshOptions)
    interfaces: tuple[str, ...] = ()
    # Interpreters of hosts that have their own
    pythons: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class JobPlan:
    """What to run. Times are seconds.

    With ``cluster`` the addresses are found out at the start and added to the environments.
    ``payload`` is for workers that run a function (HostPlan.task). ``parent`` is a descriptor whose
    end means SIGTERM.
    """

    hosts: list[HostPlan]
    grace_period: float
    term_grace: float
    start_timeout: float
    host_timeout: float = 10.0
    output_directory: str | None = None
    timestamps: bool = False
    verbose: bool = False
    cluster: Cluster | None = None
    payload: bytes = b""
    parent: int | None = None

    @property
    def size(self) -> int:
        return sum(len(host.workers) for host in self.hosts)
