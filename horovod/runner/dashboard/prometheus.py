"""Prometheus' text format 0.0.4, one target for a job, with the labels rank and host.

Never a tensor's name: there may be thousands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

# Of each rank: metric, kind, help, key of the snapshot's rank
_OF_RANKS = (
    ("horovod_up", "gauge", "Whether the process runs.", "up"),
    ("horovod_steps_total", "counter", "Steps of the training.", "steps"),
    ("horovod_last_ready_total", "counter", "Operations that waited for this rank last.", "last_ready"),
    ("horovod_late_seconds_total", "counter", "By how long, summed over tensors.", "late_seconds"),
    ("horovod_pending_operations", "gauge", "Submitted and not finished.", "pending"),
    ("horovod_exposed_ratio", "gauge", "Share of the time that the application is blocked.", "exposed"),
    ("horovod_cpu_ratio", "gauge", "Processors that the process uses.", "cpu"),
    ("horovod_resident_bytes", "gauge", "Memory of the process.", "memory"),
    ("horovod_peer_rtt_seconds", "gauge", "Round trip to rank 0.", "round_trip_seconds"),
)


def exposition(snapshot: Mapping[str, Any]) -> str:
    """The text of a job's snapshot."""
    return "\n".join(_lines(snapshot)) + "\n"


def _lines(snapshot: Mapping[str, Any]) -> Iterator[str]:
    job, ranks = snapshot["job"], snapshot["ranks"]
    yield from _head("horovod_info", "gauge", "What this job is.")
    about = {"version": job.get("version"), "transport": job.get("transport"), "size": job.get("np")}
    yield f"horovod_info{_labels(about)} 1"
    for name, kind, help_text, key in _OF_RANKS:
        yield from _head(name, kind, help_text)
        for rank in ranks:
            value = rank["state"] in ("running", "stalled") if key == "up" else rank.get(key)
            if value is not None:
                yield f"{name}{_labels({'rank': rank['rank'], 'host': rank['host']})} {float(value):.15g}"
    rate = snapshot["rates"].get("bytes_per_second")
    if rate is not None:
        yield from _head("horovod_bytes_per_second", "gauge", "Bytes of operations at rank 0.")
        yield f"horovod_bytes_per_second {rate:.15g}"
    yield from _head("horovod_stalled_ranks", "gauge", "Ranks that the others wait for.")
    yield f"horovod_stalled_ranks {sum(rank['state'] == 'stalled' for rank in ranks)}"


def _head(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"


def _labels(values: Mapping[str, Any]) -> str:
    parts = [f'{name}="{_escaped(str(value))}"' for name, value in values.items() if value is not None]
    return "{" + ",".join(parts) + "}" if parts else ""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
