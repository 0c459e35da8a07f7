"""The explanation: sentences, a table and advice, or JSON."""

from __future__ import annotations

from typing import Any

from horovod.timeline.advice import Advice, advise, slowest
from horovod.timeline.breakdown import PARTS, Result

_DISTURBED = 0.5  # of what operations moved: copying that is slower was measured while something else ran
_NAME = 80  # characters of a tensor's name that are shown
_FULL = 0.8  # of an interface's speed: headers and other traffic need the rest


def ms(ns: float) -> str:
    """Milliseconds with as many digits as they are worth."""
    value = ns / 1e6
    if value < 0.095:
        return f"{value:.1g}" if value >= 0.0001 else "0"
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def counted(number: int, word: str) -> str:
    """The number and the word, in the plural if need be."""
    return f"{number} {word}{'s' if number != 1 else ''}"


def _bytes(number: float) -> str:
    unit, divisor = next(
        each for each in (("MB", 1e6), ("kB", 1e3), ("B", 1)) if number >= each[1] or each[1] == 1
    )
    return f"{number / divisor:.3g} {unit}"


def sentences(result: Result) -> list[str]:
    """The answer in a few lines; the last ones say what to do."""
    exposed = sum(result.parts[part] for part in PARTS if part != "compute")
    hosts = f", {len(result.hosts)} hosts" if len(result.hosts) > 1 else ""
    lines = [
        f"{counted(result.count, 'step')} of {ms(result.step)} ms on "
        f"{counted(len(result.ranks), 'rank')}{hosts}. Compute "
        f"{ms(result.parts['compute'])} ms, exposed communication {ms(exposed)} ms "
        f"({100 * exposed / result.step:.0f} %: late ranks {ms(result.parts['late'])}, transfer "
        f"{ms(result.parts['transfer'])}, control {ms(result.parts['queue'] + result.parts['control'])}), "
        f"another {ms(result.hidden)} ms hidden."
    ]
    found = slowest(result)
    if found is not None and result.charged[found[0]] > 0.01 * result.step:
        rank = found[0]
        host = result.host_of(rank)
        steps = f"{result.last.get(rank, 0)} of {counted(result.count, 'step')}"
        lines.append(
            f"Rank {rank} ({host}) was last in {steps}; the "
            f"others waited {ms(result.charged[rank])} ms a step for it."
        )
    if result.operations:
        lines.append(
            f"{counted(round(result.tensors), 'tensor')} ran in "
            f"{counted(round(result.operations), 'operation')} a step, "
            f"{_bytes(result.operation_bytes)} each."
        )
    speed = _speed(result)
    if speed:
        lines.append(speed)
    advice = advise(result)
    lines += [each.sentence for each in advice]
    if not advice:
        lines.append("Nothing stands out: communication costs little, and no rank holds the others up.")
    if result.dropped:
        lines.append(
            f"{result.dropped} records were dropped: the figures are incomplete (HOROVOD_TIMELINE_BUFFER)."
        )
    if result.lost:
        lines.append(f"The records of rank {', '.join(map(str, result.lost))} end in the middle.")
    return lines


def _speed(result: Result) -> str:
    """How quick large operations were, and what could be."""
    if result.network:
        best = f" of {result.link / 1e9:.3g} ({result.link * 8 / 1e9:.3g} Gbit/s)" if result.link else ""
        full = f": the network is at its limit during {100 * result.network_share:.0f} % of a step"
        at_limit = result.link and result.network > _FULL * result.link
        return f"Between hosts {result.network / 1e9:.3g} GB/s{best}{full if at_limit else ''}."
    if result.bus and result.copy:
        beside = f", which copies memory at {result.copy / 1e9:.3g} GB/s"
        disturbed = result.copy < _DISTURBED * result.bus
        return (
            f"Large operations moved {result.bus / 1e9:.3g} GB/s on each rank{'' if disturbed else beside}."
        )
    return ""


def _shown(name: str) -> str:
    """A tensor's name on a line of a terminal, whatever is in it."""
    shown = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in name)
    return shown if len(shown) <= _NAME else f"{shown[: _NAME - 3]}..."


def table(result: Result) -> list[str]:
    """Each rank's mean step, then the operations by size; milliseconds."""
    heads = [*PARTS, "hidden", "CPU", "data"]
    lines = ["", "rank  " + "".join(f"{head:>10}" for head in heads) + "  host"]
    for each in result.ranks:
        cells = [ms(each.parts[part]) for part in PARTS] + [ms(each.hidden)]
        cells.append("-" if each.cpu is None else f"{100 * each.cpu:.0f} %")
        cells.append("-" if each.data is None else ms(each.data))
        lines.append(f"{each.rank:<6}" + "".join(f"{cell:>10}" for cell in cells) + f"  {each.host}")
    if result.classes:
        lines += ["", f"{'operations of':16}{'number':>8}{'median ms':>12}{'bus GB/s':>10}"]
        lines += [
            f"{name:16}{count:>8}{median:>12.3f}{rate:>10.3g}" for name, count, median, rate in result.classes
        ]
    if result.top:
        lines += ["", "waited for longest, ms a step and rank:"]
        lines += [f"{ms(value):>8}  {_shown(name)}" for name, value in result.top]
    return [*lines, "", f"Steps: {result.found_by}; the first {10} do not count."]


def comparison(now: Result, before: Result) -> list[str]:
    """What became slower or faster since another timeline."""
    change = now.step / before.step - 1
    word = "slower" if change > 0 else "faster"
    lines = [
        f"A step takes {ms(now.step)} ms instead of {ms(before.step)}: {100 * abs(change):.0f} % {word}."
        if abs(change) >= 0.01
        else f"A step takes {ms(now.step)} ms, as before."
    ]
    names = {"late": "late ranks"}
    changes = sorted(PARTS, key=lambda part: -abs(now.parts[part] - before.parts[part]))
    for part in changes:
        difference = now.parts[part] - before.parts[part]
        if abs(difference) > 0.01 * before.step:
            lines.append(f"{names.get(part, part)}: {ms(before.parts[part])} → {ms(now.parts[part])} ms")
    return lines


def as_json(result: Result) -> dict[str, Any]:
    """The same for programs; times are seconds of a mean step."""

    def seconds(values: dict[Any, float]) -> dict[str, float]:
        return {str(key): value / 1e9 for key, value in values.items()}

    def advice_of(each: Advice) -> dict[str, Any]:
        return {"cause": each.cause, "seconds": each.cost / 1e9, "sentence": each.sentence}

    return {
        "steps": result.count,
        "found_by": result.found_by,
        "size": len(result.ranks),
        "hosts": result.hosts,
        "transport": result.transport,
        "step": result.step / 1e9,
        "parts": seconds(result.parts),
        "hidden": result.hidden / 1e9,
        "last": {str(rank): count for rank, count in result.last.items()},
        "waited_for": seconds(result.charged),
        "operations": result.operations,
        "tensors": result.tensors,
        "bytes": result.step_bytes,
        "speed": {
            "bus": result.bus,
            "copy": result.copy,
            "network": result.network,
            "link": result.link,
            "network_share": result.network_share,
        },
        "ranks": [
            {
                "rank": each.rank,
                "host": each.host,
                "parts": seconds(each.parts),
                "hidden": each.hidden / 1e9,
                "cpu": each.cpu,
                "data": None if each.data is None else each.data / 1e9,
                "waited_for_processor": each.waited / 1e9,
            }
            for each in result.ranks
        ],
        "advice": [advice_of(each) for each in advise(result)],
        "dropped": result.dropped,
    }
