"""The events file of an elastic job as data: which slots were in use when, and why that changed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

Slot = tuple[str, int]  # host and number


@dataclass(frozen=True)
class Stretch:
    """One process in one world."""

    slot: Slot
    worker: int
    rank: int
    start: float
    end: float


@dataclass(frozen=True)
class World:
    """A generation: when it was decided, how many ranks it has, and why there is another one."""

    generation: int
    start: float
    size: int
    reason: str


@dataclass(frozen=True)
class History:
    """All of a job, in seconds since the epoch."""

    start: float
    end: float
    slots: list[Slot]
    stretches: list[Stretch]
    worlds: list[World]


def read(text: str) -> History:
    """ValueError if it is not what `horovodrun --events-file` writes."""
    events = [_parsed(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    decided = [event for event in events if event["event"] == "generation"]
    if not decided:
        raise ValueError("no generation is in the file: is it that of horovodrun --events-file?")
    end = float(events[-1]["time"])
    worlds: list[World] = []
    stretches: list[Stretch] = []
    hosts: list[str] = []
    for number, event in enumerate(decided):
        start = float(event["time"])
        until = float(decided[number + 1]["time"]) if number + 1 < len(decided) else end
        members = event["members"]
        worlds.append(World(int(event["generation"]), start, len(members), str(event["reason"])))
        for member in members:
            slot = (str(member["host"]), int(member["slot"]))
            if slot[0] not in hosts:
                hosts.append(slot[0])
            stretches.append(Stretch(slot, int(member["worker"]), int(member["rank"]), start, until))
    slots = sorted({each.slot for each in stretches}, key=lambda slot: (hosts.index(slot[0]), slot[1]))
    return History(worlds[0].start, max(end, worlds[-1].start), slots, stretches, worlds)


def _parsed(number: int, line: str) -> dict[str, Any]:
    try:
        event = json.loads(line)
        float(event["time"])
        str(event["event"])
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"line {number} is no event of horovodrun: {line[:60]!r}") from None
    result: dict[str, Any] = event
    return result
