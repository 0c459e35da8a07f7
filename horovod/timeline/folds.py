"""Folds in the breakdown: small operations of which only the number and the sums are known.

What is known of a fold as a whole counts for the steps by their shares of its time. The sums are
exact, so what is said of all steps together is, too. An operation that only some ranks have folded
is known by halves: what rank 0's fold says of all its operations is shared out by how long each was
waited for.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from horovod.timeline.trace import Fold, Key, RankTrace


@dataclass
class FoldedWait:
    """Where the time went in which a rank was blocked by the operations of a fold; ns."""

    fold: Fold
    parts: dict[str, float]
    hidden: float
    blamed: dict[int, float]  # ranks that were late, of operations that rank 0 has not folded


class Knowledge:
    """What rank 0 alone tells: who was late."""

    def __init__(self, trace: RankTrace) -> None:
        self.folds = sorted(trace.folds, key=lambda fold: fold.key)
        self.arrivals = trace.arrivals
        self._keys = [fold.key for fold in self.folds]

    def covering(self, key: Key, count: int = 1) -> Iterator[tuple[int, int]]:
        """Which of the folds have some of these operations, and how many."""
        after = key._replace(number=key.number + count)
        at = max(0, bisect_right(self._keys, key) - 1)
        for index in range(at, bisect_left(self._keys, after)):
            other = self._keys[index]
            last = min(other.number + self.folds[index].count, after.number)
            if other[:2] == key[:2] and last > (first := max(other.number, key.number)):
                yield index, last - first


class RankFolds:
    """A rank's folds, and its operations that only rank 0 has folded."""

    def __init__(self, knowledge: Knowledge, trace: RankTrace) -> None:
        self._knowledge = knowledge
        self._rank = trace.rank
        folds = knowledge.folds
        before = [0.0] * len(folds)  # of rank 0's folds: for how long this rank waited for beginnings
        alone: dict[Key, tuple[int, int, int]] = {}
        for wait in trace.waits:
            operation = None if wait.key is None else trace.operations.get(wait.key)
            if operation is None or operation.key in alone or operation.key in knowledge.arrivals:
                continue
            for index, _ in knowledge.covering(operation.key):
                length = min(max(operation.begin, wait.begin), wait.end) - wait.begin
                alone[operation.key] = (index, wait.begin, length)
                before[index] += length
        for fold in trace.folds:
            for index, count in knowledge.covering(fold.key, fold.count):
                before[index] += fold.sums.get("before", 0) * count / fold.count
        # For how long it waited for other ranks: not while it was not blocked.
        self.late = [
            min(total, fold.ranks[trace.rank].waited if trace.rank in fold.ranks else 0)
            for total, fold in zip(before, folds, strict=True)
        ]
        self._late = [late / total if total else 0.0 for late, total in zip(self.late, before, strict=True)]
        self._queue = [
            min(total - late, fold.sums.get("queue", 0)) / total if total else 0.0
            for late, total, fold in zip(self.late, before, folds, strict=True)
        ]
        # Of operations that only rank 0 has folded: when the last rank had them and when they were released.
        self.moments = {
            key: (
                begin + length * self._late[index],
                begin + length * (self._late[index] + self._queue[index]),
            )
            for key, (index, begin, length) in alone.items()
        }
        self.waits = [self._wait(fold) for fold in sorted(trace.folds, key=lambda fold: fold.begin)]
        self._spans = [(wait.fold.begin, wait.fold.end) for wait in self.waits]

    def blocked(self, begin: float, end: float, key: Key) -> float:
        """For how long the application was blocked by folded operations in this time.

        Not by those with this one among them: it was blocked after it had submitted each.
        """
        total = 0.0
        for index, piece in shares(begin, end, self._spans):
            fold = self.waits[index].fold
            among = fold.key[:2] == key[:2] and 0 <= key.number - fold.key.number < fold.count
            if not among:
                total += fold.exposed * (piece[1] - piece[0]) / (fold.end - fold.begin)
        return total

    def _wait(self, fold: Fold) -> FoldedWait:
        late, queue, covered = 0.0, 0.0, 0
        transfer, before = fold.sums.get("transfer", 0), fold.sums.get("before", 0)
        for index, count in self._knowledge.covering(fold.key, fold.count):
            covered += count
            late += before * count / fold.count * self._late[index]
            queue += before * count / fold.count * self._queue[index]
        lags: Counter[int] = Counter()
        for number in range(fold.count) if covered < fold.count else ():
            arrival = self._knowledge.arrivals.get(fold.key._replace(number=fold.key.number + number))
            if arrival is None or not arrival.ready:
                continue
            culprit = max(arrival.ready, key=lambda rank: arrival.ready[rank])
            latest = arrival.ready[culprit]
            lags[culprit] += latest - arrival.ready.get(self._rank, latest)
            queue += max(0, arrival.release - latest)
        lag = sum(lags.values())
        scale = min(1.0, (before - late) / lag) if lag else 0.0
        late = min(before, late + scale * lag)
        queue = min(queue, before - late)
        parts = {
            "late": late,
            "queue": queue,
            "control": fold.exposed - late - queue - transfer,
            "transfer": float(transfer),
        }
        hidden = max(0.0, fold.sums.get("flight", 0) - before - transfer)
        blamed = {culprit: scale * each for culprit, each in lags.items() if culprit != self._rank}
        return FoldedWait(fold, parts, hidden, blamed)


def shares(
    begin: float, end: float, span: Sequence[tuple[float, float]]
) -> Iterator[tuple[int, tuple[float, float]]]:
    """The steps that this time is in, with their pieces of it."""
    at = max(0, bisect_right(span, begin, key=lambda step: step[0]) - 1)
    for index in range(at, len(span)):
        piece = (max(begin, span[index][0]), min(end, span[index][1]))
        if span[index][0] >= end:
            return
        if piece[1] > piece[0]:
            yield index, piece
