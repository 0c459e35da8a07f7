"""What an elastic job consists of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from horovod._net.addresses import Endpoint
from horovod.runner.elastic.discovery import HostDiscoveryScript
from horovod.runner.elastic.state import Limits
from horovod.runner.launcher.supervision import Manner
from horovod.runner.plan.hosts import HostInfo


@dataclass(frozen=True)
class ElasticPlan:
    """What to run and within which limits. Times are seconds.

    Hosts are ``hosts``, or what ``script`` says every ``discovery_seconds``.
    ``environment(host, remote, endpoint)`` is the whole environment of a host's workers but what
    differs between them. ``payload`` is for workers that run a function.
    """

    limits: Limits
    manner: Manner
    directory: str
    command: list[str]
    environment: Callable[[str, bool, Endpoint], dict[str, str]]
    key: bytes = field(repr=False)
    hosts: list[HostInfo] | None = None
    script: HostDiscoveryScript | None = None
    discovery_seconds: float = 1.0
    interfaces: tuple[str, ...] = ()
    payload: bytes | None = None
    preemption_grace: float = 30.0
    output_directory: str | None = None
    timestamps: bool = False
    events_file: str | None = None
    timeline: str = ""  # which all ranks record for
    talkative: bool = False  # says everything that it does
