"""Slurm's short forms: `node[1-3,7]` for names of nodes and `2(x3),1` for numbers of tasks."""

from __future__ import annotations

import itertools
import math
import re

_MOST = 1 << 16  # more nodes than any cluster has: a mistyped range must not eat the memory
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_COUNT = re.compile(r"(\d+)(?:\(x(\d+)\))?")


def expand_nodes(text: str) -> list[str]:
    """The names that `text` stands for, in order; ValueError if it follows no rule."""
    names: list[str] = []
    for word in _words(text):
        pieces = re.split(r"\[([^][]*)\]", word)  # texts and the contents of brackets in turn
        if any(set(piece) & set("[]") for piece in pieces[::2]) or word == "":
            raise ValueError(f"{text!r} is not a list of nodes such as node[1-3,7]")
        choices = [[piece] if i % 2 == 0 else _numbers(piece, text) for i, piece in enumerate(pieces)]
        if len(names) + math.prod(map(len, choices)) > _MOST:
            raise ValueError(f"{text!r} stands for more than {_MOST} nodes")
        names += ["".join(parts) for parts in itertools.product(*choices)]
    return names


def expand_counts(text: str) -> list[int]:
    """`2(x3),1` is [2, 2, 2, 1]; ValueError if it follows no rule."""
    counts: list[int] = []
    for word in text.split(","):
        match = _COUNT.fullmatch(word.strip())
        if match is None or int(match[2] or 1) > _MOST or not word.isascii():
            raise ValueError(f"{text!r} is not a list of counts such as 2(x3),1")
        counts += [int(match[1])] * int(match[2] or 1)
    return counts


def _words(text: str) -> list[str]:
    """Split at the commas outside of brackets."""
    words = [""]
    depth = 0
    for letter in text.strip():
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth == 0:
            words.append("")
        else:
            words[-1] += letter
    return words


def _numbers(content: str, text: str) -> list[str]:
    """`08-10,12` is 08, 09, 10, 12: the width of the first number is kept."""
    numbers: list[str] = []
    for part in content.split(","):
        match = _RANGE.fullmatch(part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match and part.isascii() else (1, 0)
        if match is None or last < first:
            raise ValueError(f"{text!r}: {part!r} is not a number or range")
        if last - first >= _MOST:
            raise ValueError(f"{text!r} stands for more than {_MOST} nodes")
        numbers += [str(number).zfill(len(match[1])) for number in range(first, last + 1)]
    return numbers
