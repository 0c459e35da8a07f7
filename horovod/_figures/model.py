"""What is known of a job: events and summaries in, a snapshot out. Pure; times are arguments."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

_EVENTS = 200
_HISTORY = 600  # seconds
_SILENT = 4.0  # seconds without news before the page says so
_RATES_OVER = 5.0  # seconds

Snapshot = dict[str, Any]


class Model:
    """One job. Not for several threads at once."""

    def __init__(self) -> None:
        self._job: dict[str, Any] = {}
        self._ranks: dict[int, dict[str, Any]] = {}
        self._events: deque[dict[str, Any]] = deque(maxlen=_EVENTS)
        self._stacks: dict[int, dict[str, Any]] = {}
        self._hangs: dict[str, list[int]] = {}  # operations that do not end, and the ranks in them
        self._history: deque[list[float | None]] = deque(maxlen=_HISTORY)
        # Of each rank the summaries of the last seconds: (time, summary)
        self._recent: dict[int, deque[tuple[float, Mapping[str, Any]]]] = {}
        self._heard: float | None = None
        self._user: dict[str, Any] = {}

    def event(self, event: Mapping[str, Any]) -> None:
        """An event of the log."""
        name = event["event"]
        self._events.append(dict(event))
        if name == "job_start":
            self._job = {key: event.get(key) for key in ("id", "version", "np", "command", "hosts", "time")}
            for host, ranks in (event.get("hosts") or {}).items():
                for rank in ranks:
                    self._ranks[int(rank)] = {"rank": int(rank), "host": host, "state": "starting"}
        elif name == "rank_started":
            self._rank(event["rank"]).update(host=event["host"], pid=event["pid"], state="running", what="")
        elif name == "rank_exit":
            present = self._ranks.get(event["rank"], {}).get("pid")
            if event.get("pid", present) == present:  # else the rank is another process by now
                state = "ended" if event["code"] == 0 else "failed"
                self._rank(event["rank"]).update(state=state, what=event["what"])
        elif name == "reset":
            self._job["np"] = event["size"]
            for known in (self._ranks, self._recent, self._stacks, self._hangs):
                known.clear()
        elif name == "host_lost":
            for rank in event["ranks"]:
                self._rank(rank).update(state="failed", what="its host was lost")
        elif name in ("hang", "stall_resolved"):
            for operation in event["tensors"]:
                self._hangs.pop(operation, None)
                if name == "hang":
                    self._hangs[operation] = list(event["ready"])
        elif name == "stacks":
            self._stacks[int(event["rank"])] = dict(event)
        elif name == "job_end":
            self._job |= {"code": event["code"], "seconds": event["seconds"]}
        elif name == "world":
            self._job |= {"transport": event.get("transport"), "size": event.get("size")}

    def summaries(self, now: float, ranks: Sequence[Mapping[str, Any]], user: Mapping[str, Any]) -> None:
        """What rank 0 knows of all ranks, at ``now`` (seconds since 1970); counters only grow."""
        self._heard = now
        self._user = dict(user)
        for summary in ranks:
            recent = self._recent.setdefault(int(summary["rank"]), deque())
            recent.append((now - float(summary.get("age", 0.0)), summary))
            while len(recent) > 2 and recent[0][0] < now - _RATES_OVER:
                recent.popleft()
        first = self._rates(0)
        means = [self._rates(rank).get("exposed") for rank in self._recent]
        known = [value for value in means if value is not None]
        exposed = sum(known) / len(known) if known else None
        self._history.append(
            [round(now, 1), first.get("steps_per_second"), exposed, first.get("bytes_per_second")]
        )

    def snapshot(self, now: float) -> Snapshot:
        """All of it for a reader, as JSON."""
        over = "code" in self._job
        age = None if self._heard is None else now - self._heard
        ranks = [self._shown(rank, now) for rank in sorted(self._ranks)]
        late = sum(float(rank.get("late_seconds") or 0.0) for rank in ranks)
        stragglers = sorted(
            (
                {
                    "rank": rank["rank"],
                    "host": rank["host"],
                    "last": rank.get("last_ready") or 0,
                    "seconds": seconds,
                }
                for rank in ranks
                if (seconds := float(rank.get("late_seconds") or 0.0)) > 0.01 * late
            ),
            key=lambda each: -each["seconds"],
        )
        return {
            "time": now,
            "job": self._job,
            "over": over,
            "news": age,
            "silent": not over and age is not None and age > _SILENT,
            "ranks": ranks,
            "rates": self._rates(0),
            "history": list(self._history),
            "stragglers": stragglers[:5],
            "events": list(self._events),
            "stacks": [self._stacks[rank] for rank in sorted(self._stacks)],
            "user": self._user,
        }

    def _rank(self, rank: int) -> dict[str, Any]:
        return self._ranks.setdefault(int(rank), {"rank": int(rank), "host": "", "state": "starting"})

    def _rates(self, rank: int) -> dict[str, Any]:
        """What the counters did over the last seconds."""
        recent = self._recent.get(rank)
        if not recent or len(recent) < 2 or recent[-1][0] - recent[0][0] < 0.1:
            return {}
        (begin, old), (end, new) = recent[0], recent[-1]
        seconds = end - begin

        def rate(name: str) -> float:
            return max(0.0, float(new.get(name, 0)) - float(old.get(name, 0))) / seconds

        return {
            "steps_per_second": rate("steps") if new.get("steps") else None,  # nobody marks them
            "bytes_per_second": rate("bytes"),
            "operations_per_second": rate("operations"),
            "exposed": min(1.0, rate("blocked_ns") / 1e9),
            "cpu": rate("cpu_ns") / 1e9,
            "late": min(1.0, rate("late_ns") / 1e9),  # share of the time in which the others wait for it
        }

    def _shown(self, rank: int, now: float) -> dict[str, Any]:
        shown = dict(self._ranks[rank])
        recent = self._recent.get(rank)
        if recent:
            at, summary = recent[-1]
            shown |= {
                "steps": counted(summary)["steps"],
                "pending": summary.get("pending"),
                "memory": summary.get("resident_bytes"),
                "running": summary.get("running"),
                "running_seconds": float(summary.get("running_ns") or 0) / 1e9,
                "last_ready": summary.get("last_ready"),
                "late_seconds": float(summary.get("late_ns") or 0) / 1e9,
                "step_seconds": float(summary.get("step_ns") or 0) / 1e9,
                "round_trip_seconds": float(summary.get("rtt_ns") or 0) / 1e9,
                "clock_offset": float(summary.get("clock_offset_ns") or 0) / 1e9,
                "blocked_seconds": float(summary.get("blocked_ns") or 0) / 1e9,
                "dropped": summary.get("dropped"),
                "counted": counted(summary),
                "age": now - at,
                **{k: value for k, value in self._rates(rank).items() if k in ("exposed", "cpu", "late")},
            }
            if shown["state"] == "running" and summary.get("waited_for"):
                shown["state"] = "stalled"
                shown["what"] = "the others wait for it"
        hangs = [operation for operation, ranks in self._hangs.items() if rank in ranks]
        if shown["state"] == "running" and hangs:
            shown["state"] = "stalled"
            shown["what"] = f"{hangs[0]} does not end"
        return shown


def counted(summary: Mapping[str, Any]) -> dict[str, Any]:
    """What only grows, with that of this rank in the worlds before."""
    before = summary.get("before") or {}

    def sum_of(name: str) -> int:
        return int(summary.get(name) or 0) + int(before.get(name) or 0)

    return {
        "steps": sum_of("steps") or None,  # nobody marks them
        "bytes": sum_of("bytes"),
        "last_ready": sum_of("last_ready"),
        "blocked_seconds": sum_of("blocked_ns") / 1e9,
        "dropped": sum_of("dropped"),
        "late_seconds": sum_of("late_ns") / 1e9,
    }
