"""What an agent has to start on its host: plain data, JSON on the wire."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Worker:
    """One rank: ``env`` is added to the environment of the host plan."""

    rank: int
    env: dict[str, str]


@dataclass(frozen=True)
class HostPlan:
    """Everything about one host. ``env`` is the whole environment and holds the job key: never log it.

    With ``resolve`` the agent looks for the command on its own machine. With ``task`` every worker gets the
    payload on one descriptor and writes its result to another: see task.py.
    """

    host: str
    directory: str
    command: list[str]
    env: dict[str, str]
    workers: list[Worker]
    resolve: bool = False
    task: bool = False

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str | bytes) -> HostPlan:
        data = json.loads(text)
        data["workers"] = [Worker(**worker) for worker in data["workers"]]
        return HostPlan(**data)
