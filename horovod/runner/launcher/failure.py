"""What to say about processes that failed. Pure functions."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence

# As the traceback module writes it, also in the middle of a chain of exceptions.
_CONSEQUENCE = re.compile(r"(\w+\.)*HorovodInternalError\b")


def exit_code(code: int) -> int:
    """A shell's exit code for a return code of subprocess (negative: ended by a signal)."""
    return 128 - code if code < 0 else code


def describe(code: int, ours: bool = False) -> str:
    """How a process ended, in words. ``ours``: the launcher was about to end it."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        name = f" ({signal.Signals(-code).name})"
    except ValueError:
        name = ""
    hint = ""
    if -code == signal.SIGKILL:
        hint = " from horovodrun" if ours else ", perhaps because the host ran out of memory"
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


def cause(ends: Sequence[tuple[int, Sequence[str]]]) -> int:
    """Which of several failures, given by return code and end of stderr in order of arrival, caused
    the rest.

    The order alone does not tell: a rank that raises says goodbye to the others on its way out, and
    they may be faster. But a rank that a signal ended, or that did not raise the error that means
    "another rank is gone", was not brought down by them.
    """
    return next((index for index, (code, tail) in enumerate(ends) if not is_consequence(code, tail)), 0)


def is_consequence(code: int, tail: Sequence[str]) -> bool:
    """Whether a rank ended because another one was gone."""
    return code >= 0 and any(_CONSEQUENCE.match(line) for line in tail)


def report(rank: int, host: str, what: str, code: int, tail: Sequence[str], name: str | None = None) -> str:
    """The last words: which rank failed first, its stderr, and lines that scripts look for.

    ``name`` is the process's own if it may have had several ranks.
    """
    who = f"rank {rank} on {host}" if rank >= 0 else name
    lines = ["", f"horovodrun: {who} failed first: it {what}."]
    if tail:
        lines.append("The end of its stderr:")
        lines += [f"  | {line}" for line in tail]
    else:
        lines.append("It wrote nothing to stderr.")
    lines += [
        "",
        "Horovod detected that one or more processes exited with non-zero status. The first one:",
        f"Process name: {rank if name is None else name}",
        f"Exit code: {exit_code(code)}",
    ]
    return "\n".join(lines) + "\n"
