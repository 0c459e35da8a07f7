"""What to do about it: a table of rules, the most costly first."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from horovod.timeline.breakdown import Result

MOST = 3
_WORTH = 0.03  # of a step: what costs less is not mentioned
_SYSTEMATIC = 0.6  # of all waiting for late ranks is for one
_CHANCE = 2.0  # standard deviations: who is last more often than that is not so by chance
_RARE = 0.25  # of the steps: who is late in fewer of them does something rare
_IDLE = 0.5  # of its compute time: a processor that works less waits for something
_CROWDED = 0.1  # of a step: who waits longer for a processor has too many threads beside it
_SLOW_LINK = 0.4  # of its interface's speed: a network that is slower is worth a look


class Advice(NamedTuple):
    """A cause, what it costs in a step (ns), and what to do."""

    cause: str
    cost: float
    sentence: str


Finding = tuple[float, str] | None  # of a rule: an Advice without its cause


def slowest(result: Result) -> tuple[int, bool] | None:
    """The rank that the others waited for longest, and whether it is mostly that one, and not by chance."""
    total = sum(result.charged.values())
    if not total:
        return None
    rank = max(result.charged, key=lambda each: result.charged[each])
    return rank, result.charged[rank] >= _SYSTEMATIC * total and _too_often(result, rank)


def _too_often(result: Result, rank: int) -> bool:
    """Of two ranks one is always the last one: if each has its turn by chance, in about half of the steps."""
    turns, share = sum(result.last.values()), 1 / len(result.charged)
    chance = turns * share + _CHANCE * math.sqrt(turns * share * (1 - share))
    return 0 < min(turns, chance) <= result.last.get(rank, 0)


def _slow_rank(result: Result) -> Finding:
    found = slowest(result)
    if found is None or not found[1]:
        return None
    rank = found[0]
    host = result.host_of(rank)
    mine = next((each for each in result.ranks if each.rank == rank), None)
    others = [each for each in result.ranks if each.rank != rank]
    if result.last[rank] < _RARE * result.count:
        return result.charged[rank], (
            f"Rank {rank} ({host}) was late in few steps, but then much: look at what it does there "
            "that the others don't (checkpoints, evaluation, logs), and at what else runs on its host."
        )
    why = "look at what else runs on its host, and at its share of the data"
    usual = sum(each.data or 0.0 for each in others) / max(1, len(others))
    if mine is not None and mine.data is not None and mine.data - usual > 0.5 * result.parts["late"]:
        why = (
            f"it waits {mine.data / 1e6:.3g} ms a step for its data: load it in the background, or elsewhere"
        )
    elif mine is not None and mine.cpu is not None and mine.cpu < _IDLE:
        why = (
            f"its processor works for it only {100 * mine.cpu:.0f} % of its own time: it waits, perhaps for "
            "data (put the loader into \"with hvd.trace('data'):\" to know)"
        )
    return result.charged[rank], f"Rank {rank} ({host}) holds the others up: {why}."


def _imbalance(result: Result) -> Finding:
    found = slowest(result)
    if found is None or found[1]:
        return None
    return result.parts["late"], (
        "Ranks are late in turn: the work of a step differs from rank to rank. Even out batches (length of "
        "sequences), and keep other programs off the processors."
    )


def _input(result: Result) -> Finding:
    with_data = [each for each in result.ranks if each.data is not None]
    if len(with_data) < len(result.ranks):
        return None
    each = sum(rank.data or 0.0 for rank in with_data) / len(with_data)
    return each, (
        f"All ranks wait {each / 1e6:.3g} ms a step for data: load in the background (horovod.data), with "
        "more workers, or prepare the data beforehand."
    )


def _idle(result: Result) -> float | None:
    """How much of the time between communication the processors work, if that is little on all ranks."""
    shares = [each.cpu for each in result.ranks if each.cpu is not None]
    if len(shares) < len(result.ranks) or max(shares) >= _IDLE:
        return None
    found = slowest(result)
    if found is not None and found[1] and result.charged[found[0]] > _WORTH * result.step:
        return None  # one rank, not all
    return sum(shares) / len(shares)


def _waited(result: Result) -> float:
    """For a processor, on average."""
    return sum(each.waited for each in result.ranks) / len(result.ranks)


def _crowded_out(result: Result, idle: float) -> bool:
    """Whether waiting for a processor is most of it."""
    return _waited(result) > 0.5 * (1 - idle) * result.parts["compute"]


def _waiting(result: Result) -> Finding:
    mean = _idle(result)
    if mean is None or _crowded_out(result, mean):
        return None
    if all(each.data is not None for each in result.ranks):
        return None  # known better
    return (1 - mean) * result.parts["compute"], (
        f"The processors work only {100 * mean:.0f} % of the time between communication: the ranks wait, "
        "perhaps for data (put the loader into \"with hvd.trace('data'):\" to know)."
    )


def _other_programs(result: Result) -> Finding:
    mean = _idle(result)
    if mean is None or not _crowded_out(result, mean):
        return None
    return _waited(result), (
        f"The ranks wait {_waited(result) / 1e6:.3g} ms a step for a processor that other programs use: keep "
        "these away, or start fewer ranks."
    )


def _processors(result: Result) -> Finding:
    """Only waiting that the ranks cause each other: what else runs there is not theirs to change."""
    waited = {host: [each.waited for each in result.ranks if each.host == host] for host in result.full}
    if not waited:
        return None
    host, each = max(waited.items(), key=lambda item: sum(item[1]) / len(item[1]))
    mean, count = sum(each) / len(each), result.full[host]
    if mean < _CROWDED * result.step:
        return None  # the engine's threads, and the system's, need a moment, too
    remedy = (
        f"let each compute with fewer threads (OMP_NUM_THREADS={count // len(each)})"
        if count >= len(each)
        else "start fewer ranks there"
    )
    return mean, (
        f"The ranks of {host} keep its {count} processor{'s' if count > 1 else ''} busy and wait "
        f"{mean / 1e6:.3g} ms a step for one: {remedy}."
    )


def _small(result: Result) -> Finding:
    if result.small < 8 or result.small < 0.5 * result.operations:
        return None
    # Fused, they would cost about what two cost.
    exposed = sum(result.parts[part] for part in ("queue", "control", "transfer"))
    cost = min(exposed, result.small_seconds * (1 - 2 / result.small))
    return cost, (
        f"{result.small:.0f} operations a step have at most 64 KiB: submit tensors before waiting for the "
        f"first (allreduce_async, grouped_allreduce), so that they are fused (about {cost / 1e6:.3g} ms less "
        "a step), or use larger buckets."
    )


def _network(result: Result) -> Finding:
    if len(result.hosts) < 2 and result.transport != "tcp":
        return None
    rate = max((each[3] for each in result.classes), default=0.0)
    return result.parts["transfer"], (
        f"The network carries {result.step_bytes / 1e6:.1f} MB a step at {rate:.3g} GB/s: compress "
        "(hvd.Compression.fp16 halves it), accumulate gradients over several batches, or use a quicker "
        "interface (--network-interfaces)."
    )


def _link(result: Result) -> Finding:
    if not result.link or not 0 < result.network < _SLOW_LINK * result.link:
        return None
    return result.parts["transfer"], (
        f"Between hosts only {100 * result.network / result.link:.0f} % of the {result.link / 1e9:.3g} GB/s "
        "of the interface are used while data is exchanged: look at what else is on the network, and what "
        "horovodrun --doctor says of it."
    )


def _memory(result: Result) -> Finding:
    if len(result.hosts) > 1 or result.transport == "tcp":
        return None
    return result.parts["transfer"] - result.small_seconds, (
        f"The ranks wait while {result.step_bytes / 1e6:.1f} MB a step go through this host's memory: "
        "compress (hvd.Compression.fp16 halves it), accumulate gradients over several batches, or let the "
        "optimizer's hooks exchange them while the backward pass computes."
    )


def _names(result: Result) -> Finding:
    if result.once < 0.5 or result.tensors < 1:
        return None
    return result.parts["queue"] + result.parts["control"], (
        f"{100 * result.once:.0f} % of the tensors' names come only once, so that nothing is remembered: "
        "give tensors names that recur in every step."
    )


RULES: dict[str, Callable[[Result], Finding]] = {
    "slow rank": _slow_rank,
    "imbalance": _imbalance,
    "input": _input,
    "idle": _waiting,
    "processors": _processors,
    "other programs": _other_programs,
    "small operations": _small,
    "network": _network,
    "link": _link,
    "memory": _memory,
    "new names": _names,
}


def advise(result: Result) -> list[Advice]:
    """The causes that are worth a word, the most costly first, at most three."""
    found = [Advice(cause, *each) for cause, rule in RULES.items() if (each := rule(result)) is not None]
    worth = [advice for advice in found if advice.cost > _WORTH * result.step]
    return sorted(worth, key=lambda advice: -advice.cost)[:MOST]
