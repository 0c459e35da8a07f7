"""How the launcher brings the hosts of a job together before any rank starts. No I/O.

First every host tells where it listens and how it reaches the launcher; then every host tries all
others. Problems are collected per host, so that one look shows all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from horovod._net.addresses import Endpoint, show
from horovod.runner.host_survey.address_choice import cover

_NAMED = 5  # hosts listed in a message


class Stage(Enum):
    """What the hosts are asked for."""

    LISTEN = "to answer"
    REACH = "to try the other hosts"
    READY = "nothing more"
    FAILED = "nothing more, because the job cannot start"


@dataclass(frozen=True)
class HostNetwork:
    """How one host takes part."""

    launcher: Endpoint  # the rendezvous as this host reaches it
    addresses: list[str]  # where the other hosts reach this one
    interface: str  # of the first of them


class HostSurvey:
    """The state of the start of a job on several hosts."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self._hosts = list(hosts)
        self.stage = Stage.LISTEN
        self.waiting = set(hosts)  # who has not answered in this stage
        self.problems: dict[str, str] = {}  # by host
        self._offered: dict[str, list[tuple[str, str, int]]] = {}  # interface, address, port
        self._launcher: dict[str, Endpoint] = {}
        self._reached: dict[str, dict[str, list[str]]] = {}  # from, to
        self._why_not: dict[str, dict[str, str]] = {}  # from, to

    def failed(self, host: str, problem: str) -> None:
        """A host can't take part; the first problem of each counts."""
        self.problems.setdefault(host, problem)
        self.waiting.discard(host)
        self._advance()

    def give_up(self, problem: str) -> None:
        """Time is up for everyone who has not answered."""
        for host in sorted(self.waiting):
            self.problems.setdefault(host, problem)
        self.waiting.clear()
        self._advance()

    def listening(self, host: str, data: Mapping[str, Any]) -> None:
        """A host's report on itself."""
        if "problem" in data:
            self.failed(host, str(data["problem"]))
            return
        self._offered[host] = [
            (str(name), str(address), int(port)) for name, address, port in data["offered"]
        ]
        address, port = data["launcher"]
        self._launcher[host] = (str(address), int(port))
        self.waiting.discard(host)
        self._advance()

    def reached(self, host: str, data: Mapping[str, Any]) -> None:
        """A host's report on the others."""
        self._reached[host] = data["reached"]
        self._why_not[host] = data["problems"]
        self.waiting.discard(host)
        self._advance()

    def peers_of(self, host: str) -> dict[str, list[Endpoint]]:
        """What ``host`` has to try in the stage REACH."""
        return {
            other: [(address, port) for _, address, port in self._offered[other]]
            for other in self._hosts
            if other != host
        }

    def network(self, host: str) -> HostNetwork:
        """How ``host`` takes part, in the stage READY."""
        chosen, _ = self._cover(host)
        interfaces = {address: interface for interface, address, _ in self._offered[host]}
        return HostNetwork(self._launcher[host], chosen, interfaces[chosen[0]])

    def launcher_addresses(self) -> set[str]:
        """The launcher's addresses that are needed, in the stage READY."""
        return {address for address, _ in self._launcher.values()}

    def _cover(self, host: str) -> tuple[list[str], list[str]]:
        offered = [address for _, address, _ in self._offered[host]]
        return cover(offered, {other: self._reached[other][host] for other in self._hosts if other != host})

    def _advance(self) -> None:
        if self.waiting or self.stage in (Stage.READY, Stage.FAILED):
            return
        if self.problems:
            self.stage = Stage.FAILED
        elif self.stage is Stage.LISTEN:
            self.stage = Stage.REACH
            self.waiting = set(self._hosts)
        else:
            self._find_gaps()
            self.stage = Stage.FAILED if self.problems else Stage.READY

    def _find_gaps(self) -> None:
        for host in self._hosts:
            _, missing = self._cover(host)
            if not missing:
                continue
            who = ", ".join(missing[:_NAMED]) + (" and others" if len(missing) > _NAMED else "")
            why = self._why_not[missing[0]].get(host) or ", ".join(
                show((address, port)) for _, address, port in self._offered[host]
            )
            self.problems[host] = (
                f"{who} cannot reach it ({why}): the hosts of a job must be able to connect to each other on "
                "any port; open the firewall, or choose another network with --network-interfaces"
            )
