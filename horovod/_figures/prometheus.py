"""Prometheus' text format 0.0.4, one target for a job, with the labels rank and host.

Never a tensor's name: there may be thousands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

# Of each rank: metric, kind, help, key of the snapshot's rank, or of what it has counted
_OF_RANKS = (
    ("horovod_up", "gauge", "Whether the process runs.", "up"),
    ("horovod_steps_total", "counter", "Steps of the training.", "steps"),
    ("horovod_last_ready_total", "counter", "Operations that waited for this rank last.", "last_ready"),
    ("horovod_blocked_seconds_total", "counter", "How long the application was blocked.", "blocked_seconds"),
    ("horovod_trace_dropped_total", "counter", "Records that the timeline had no room for.", "dropped"),
    ("horovod_late_seconds_total", "counter", "How long the others waited for it then.", "late_seconds"),
    ("horovod_pending_operations", "gauge", "Submitted and not finished.", "pending"),
    ("horovod_exposed_ratio", "gauge", "Share of the time that the application is blocked.", "exposed"),
    ("horovod_cpu_ratio", "gauge", "Processors that the process uses.", "cpu"),
    ("horovod_resident_bytes", "gauge", "Memory of the process.", "memory"),
    ("horovod_peer_rtt_seconds", "gauge", "Round trip to rank 0.", "round_trip_seconds"),
    ("horovod_clock_offset_seconds", "gauge", "By how much its clock is ahead of rank 0's.", "clock_offset"),
)
# What only rank 0 tells, of itself: name, kind, help, and the labels of its parts
_OF_RANK_0 = (
    ("operations_total", "counter", "Operations that have run.", ("kind",)),
    ("tensors_total", "counter", "Tensors in them.", ("kind",)),
    ("bytes_total", "counter", "Bytes of their tensors.", ("kind",)),
    ("network_bytes_total", "counter", "Data that went through sockets or MPI.", ("direction",)),
    ("control_messages_total", "counter", "What it and other ranks told each other.", ("direction",)),
    ("cache_hits_total", "counter", "Operations announced by a number.", ()),
    ("cache_misses_total", "counter", "Operations announced by a description.", ()),
    ("cache_evictions_total", "counter", "Descriptions that were forgotten.", ()),
    (
        "operations_without_coordinator_total",
        "counter",
        "Small ones that all ranks waited for at the same time.",
        (),
    ),
    ("samples_total", "counter", "Samples, as the program tells.", ()),
    ("stalls_total", "counter", "Reports of something that stood still.", ()),
    ("resets_total", "counter", "How often the process has left a world.", ()),
    ("failures_total", "counter", "Worlds that have ended by a failure.", ()),
    ("stalled_operations", "gauge", "Operations that wait for too long.", ()),
    ("bus_bytes_per_second", "gauge", "What each rank must move at least for the operations.", ()),
    ("operation_seconds", "histogram", "From the start of an operation to its end.", ("kind", "size")),
    ("negotiation_seconds", "histogram", "From the submission of a tensor to its start.", ()),
    ("queue_seconds", "histogram", "From readiness on all ranks to the release.", ()),
    ("step_seconds", "histogram", "Steps of the training.", ()),
    ("tensors_per_operation", "histogram", "Tensors that were fused into one operation.", ()),
)


def exposition(snapshot: Mapping[str, Any], metrics: Mapping[str, Any]) -> str:
    """The text of a job's snapshot and of what rank 0 has counted itself."""
    return "\n".join([*_lines(snapshot), *_own_lines(snapshot, metrics)]) + "\n"


def _own_lines(snapshot: Mapping[str, Any], metrics: Mapping[str, Any]) -> Iterator[str]:
    host = next((rank["host"] for rank in snapshot["ranks"] if rank["rank"] == 0), None)
    for name, kind, help_text, labels in _OF_RANK_0:
        if name not in metrics:
            continue
        yield from _head(f"horovod_{name}", kind, help_text)
        for parts, value in _parts(metrics[name], labels):
            shown = {"rank": 0, "host": host, **parts}
            if kind != "histogram":
                yield f"horovod_{name}{_labels(shown)} {float(value):.15g}"
                continue
            for limit, count in value["buckets"].items():
                yield f"horovod_{name}_bucket{_labels({**shown, 'le': limit})} {int(count)}"
            yield f"horovod_{name}_sum{_labels(shown)} {float(value['sum']):.15g}"
            yield f"horovod_{name}_count{_labels(shown)} {int(value['count'])}"


def _parts(value: Any, labels: tuple[str, ...]) -> Iterator[tuple[dict[str, str], Any]]:
    """What is within a metric that has labels, by them."""
    if not labels:
        yield {}, value
        return
    for part, inner in value.items():
        for rest, single in _parts(inner, labels[1:]):
            yield {labels[0]: part, **rest}, single


def _lines(snapshot: Mapping[str, Any]) -> Iterator[str]:
    job, ranks = snapshot["job"], snapshot["ranks"]
    yield from _head("horovod_info", "gauge", "What this job is.")
    about = {"version": job.get("version"), "transport": job.get("transport"), "size": job.get("np")}
    yield f"horovod_info{_labels(about)} 1"
    for name, kind, help_text, key in _OF_RANKS:
        yield from _head(name, kind, help_text)
        for rank in ranks:
            known = rank.get("counted", {}) if kind == "counter" else rank
            value = rank["state"] in ("running", "stalled") if key == "up" else known.get(key)
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
