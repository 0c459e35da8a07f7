"""What to say about processes that failed. Pure functions."""

from __future__ import annotations

import signal
from collections.abc import Sequence


def exit_code(code: int) -> int:
    """A shell's exit code for a return code of subprocess (negative: ended by a signal)."""
    return 128 - code if code < 0 else code


def describe(code: int) -> str:
    """How a process ended, in words."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        name = f" ({signal.Signals(-code).name})"
    except ValueError:
        name = ""
    hint = ", perhaps because the host ran out of memory" if -code == signal.SIGKILL else ""
    return f"was ended by signal {-code}{name}{hint}"


def ranks(numbers: Sequence[int]) -> str:
    """Sorted ranks in words: ``rank 3`` or ``ranks 0-3,7``."""
    return f"rank{'s' if len(numbers) > 1 else ''} {ranges(numbers)}"


def ranges(numbers: Sequence[int]) -> str:
    """Sorted numbers in short: ``0-3,7``."""
    parts: list[str] = []
    start = 0
    for index in range(1, len(numbers) + 1):
        if index < len(numbers) and numbers[index] == numbers[index - 1] + 1:
            continue
        first, last = numbers[start], numbers[index - 1]
        parts.append(str(first) if first == last else f"{first}-{last}")
        start = index
    return ",".join(parts)


def report(rank: int, host: str, what: str, code: int, tail: Sequence[str]) -> str:
    """The last words of the launcher: who failed first, what it said, and the lines that scripts look for."""
    lines = ["", f"horovodrun: rank {rank} on {host} failed first: it {what}."]
    if tail:
        lines.append("The end of its stderr:")
        lines += [f"  | {line}" for line in tail]
    else:
        lines.append("It wrote nothing to stderr.")
    lines += [
        "",
        "Horovod detected that one or more processes exited with non-zero status. The first one:",
        f"Process name: {rank}",
        f"Exit code: {exit_code(code)}",
    ]
    return "\n".join(lines) + "\n"
