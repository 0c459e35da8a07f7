"""Draws a job's operations from a seed: the same on all ranks, without talking to each other."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from util_model import ALL, COMPLEX, FLOATING, INTEGER

import horovod.numpy as hvd

WINDOWS_IN_FLIGHT = 3  # names come back after that many windows: then all of them have been waited for

# What a run may leave out (--without), each with what it is.
FEATURES = {
    "adasum": "Adasum where the number of ranks is a power of two",
    "average": "Average of integers and bool, which must neither overflow nor depend on hosts",
    "join": "rounds in which ranks join after different numbers of operations",
    "join-errors": "operations that fail as a rank has joined",
    "join-other-ops": "Min, Max and Product while ranks have joined",
    "join-pending": "operations still pending when join() is called",
    "large": "tensors of several MiB",
    "mismatch": "operations on which the ranks disagree",
    "remove-abandoned": "operations that not all ranks of a process set have submitted when it is removed",
    "remove-pending": "process sets that are removed while their operations are pending",
    "rounds": "rows of allreduces that all ranks wait for",
    "scale": "prescale and postscale factors",
    "sets": "process sets",
    "unnamed": "operations without a name",
    "unnamed-after-join": "operations without a name once ranks have joined unevenly",
}

KINDS = {
    "allreduce": 40,
    "grouped_allreduce": 8,
    "allgather": 12,
    "grouped_allgather": 4,
    "broadcast": 14,
    "alltoall": 10,
    "reducescatter": 10,
    "grouped_reducescatter": 4,
}
REDUCING = ("allreduce", "grouped_allreduce", "reducescatter", "grouped_reducescatter")
GATHERING = ("allgather", "grouped_allgather", "alltoall")  # the first dimension may differ
KIB = 1024
# Bytes of a tensor: weight, and from where to where. The edges are where transports change their ways.
SIZES = [
    (5, 0, 0),
    (38, 1, 120),
    (14, 120, 4 * KIB),
    (7, 4 * KIB - 64, 4 * KIB + 64),
    (5, 16 * KIB - 128, 16 * KIB + 128),
    (6, 32 * KIB - 128, 32 * KIB + 128),
    (6, 16 * KIB, 48 * KIB),
    (5, 48 * KIB - 256, 48 * KIB + 256),
    (6, 64 * KIB - 256, 64 * KIB + 256),
    (7, 64 * KIB, 512 * KIB),
]
LARGE = (2 << 20, 9 << 20)
FACTORS = [0.5, 0.25, 0.3, 2.0, -1.5]
INTEGER_FACTORS = [0.5, 0.3]


@dataclass(eq=False)
class Set:
    """A process set; `handle` is what the program gets for it."""

    members: tuple[int, ...]
    handle: Any = None


@dataclass(frozen=True)
class Operation:
    """One collective. Where `rows` has the first dimension of each rank, `shapes` are without it."""

    number: int
    kind: str
    set: Set
    name: str | None
    dtypes: tuple[np.dtype[Any], ...] = ()
    shapes: tuple[tuple[int, ...], ...] = ()
    rows: tuple[tuple[int, ...], ...] = ()  # of each tensor, of each member
    splits: tuple[tuple[int, ...], ...] | None = None  # of each member
    op: int = 1
    prescale: float = 1.0
    postscale: float = 1.0
    root: int = 0
    in_place: bool = False
    present: tuple[int, ...] = ()  # the members that have not joined
    wrong: tuple[int, str] | None = None  # the rank that disagrees, and about what
    blocking: bool = False

    @property
    def fails(self) -> bool:
        joined = self.present != self.set.members and self.kind not in (
            "allreduce",
            "grouped_allreduce",
            "barrier",
        )
        return joined or self.wrong is not None

    @property
    def order_key(self) -> object:
        """Un-named operations with the same key are matched by their order."""
        return None if self.name is not None else (self.kind, id(self.set))

    def __str__(self) -> str:
        about = f"{self.kind} {self.name or 'unnamed'} of {', '.join(map(str, self.dtypes))} {self.shapes}"
        if self.rows:
            about += f" rows {self.rows}"
        if self.splits:
            about += f" splits {self.splits}"
        if self.kind in REDUCING:
            about += f" op {self.op} prescale {self.prescale} postscale {self.postscale}"
        if self.kind == "broadcast":
            about += f" root {self.root}"
        about += f" in set {self.set.members}"
        if self.in_place:
            about += " in place"
        if self.present != self.set.members:
            about += f" without those that joined: only {self.present}"
        if self.wrong:
            about += f" where rank {self.wrong[0]} has another {self.wrong[1]}"
        return about


@dataclass(frozen=True)
class Submit:
    """Each rank may take these in an order of its own."""

    operations: tuple[Operation, ...]


@dataclass(frozen=True)
class Rounds:
    """One after another on all ranks, each waiting for its result: what small ones need no coordinator for.

    `wait`: for all others first.
    """

    operations: tuple[Operation, ...]
    wait: bool


@dataclass(frozen=True)
class Add:
    set: Set


@dataclass(frozen=True)
class Remove:
    """`wait`: for the operations of the set first. `abandoned`: one that not all its ranks submit before."""

    set: Set
    wait: bool
    abandoned: Operation | None


@dataclass(frozen=True)
class Join:
    """Each rank does the first so many of the operations and joins. `wait`: for all its operations first."""

    operations: tuple[Operation, ...]
    counts: tuple[int, ...]
    wait: bool


Step = Submit | Rounds | Add | Remove | Join


@dataclass
class Plan:
    """What all ranks do, window by window."""

    seed: int
    size: int
    without: frozenset[str] = frozenset()
    _number: int = 0
    _joined_unevenly: bool = False
    _sets: list[Set] = field(default_factory=list)
    _templates: dict[str, Operation] = field(default_factory=dict)
    _random: random.Random = field(default_factory=random.Random)

    def __post_init__(self) -> None:
        self.world = Set(tuple(range(self.size)), hvd.global_process_set)
        self._sets.append(self.world)

    def windows(self) -> Iterator[list[Step]]:
        number = 0
        while True:
            self._random = random.Random(f"{self.seed} {number}")
            yield self._window(number % (WINDOWS_IN_FLIGHT + 1))
            number += 1

    def _has(self, feature: str) -> bool:
        return feature not in self.without

    def _window(self, names: int) -> list[Step]:
        draw = self._random
        steps: list[Step] = []
        for part in range(draw.choice((1, 1, 2, 3))):
            prefix = f"{names}.{part}"
            count = draw.choice((2, 5, 10, 20, 30))
            steps.append(Submit(tuple(self._operation(f"{prefix}.{i}") for i in range(count))))
            if self._has("sets") and self.size > 1:
                steps.extend(self._process_set_changes())
            if draw.random() < 0.5:
                for i in range(draw.choice((1, 1, 2, 8))):
                    steps.append(Submit((self._blocking(f"{prefix}.blocking {i}"),)))
            if self._has("rounds") and draw.random() < 0.4:
                steps.append(self._rounds(prefix))
            if self._has("join") and draw.random() < 0.12:
                steps.append(self._join(f"{prefix}.join"))
        return steps

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _rounds(self, prefix: str) -> Rounds:
        """Few names, many times each, so that they are remembered; some are different in the middle."""
        draw = self._random
        names = [f"{prefix}.round {i}" for i in range(draw.choice((1, 2, 3)))]
        known = [self._operation(name, "allreduce") for name in names]
        if draw.random() < 0.7:
            known = [replace(each, prescale=1.0, set=self.world) for each in known]
        operations = []
        for i in range(draw.choice((3, 10, 40))):
            again = known[i % len(names)]
            if draw.random() < 0.05:
                again = known[i % len(names)] = self._operation(names[i % len(names)], "allreduce")
            name = again.name or names[i % len(names)]
            fresh = replace(again, number=self._next(), name=name, present=again.set.members)
            operations.append(replace(fresh, blocking=True))
        return Rounds(tuple(operations), draw.random() < 0.6)

    def _process_set_changes(self) -> Iterator[Step]:
        draw = self._random
        if len(self._sets) > 1 and draw.random() < 0.12:
            chosen = self._sets.pop(draw.randrange(1, len(self._sets)))
            wait = not self._has("remove-pending") or draw.random() < 0.3
            yield Remove(chosen, wait, self._abandoned(chosen))
        if len(self._sets) < 6 and draw.random() < 0.3:
            ranks = tuple(sorted(draw.sample(range(self.size), draw.randint(1, max(1, self.size - 1)))))
            if ranks not in [known.members for known in self._sets]:
                self._sets.append(Set(ranks))
                yield Add(self._sets[-1])

    def _abandoned(self, chosen: Set) -> Operation | None:
        draw, members = self._random, chosen.members
        if not self._has("remove-abandoned") or len(members) < 2 or draw.random() < 0.7:
            return None
        present = tuple(sorted(draw.sample(members, draw.randint(1, len(members) - 1))))
        common = Operation(self._next(), "allreduce", chosen, "abandoned", present=present)
        return replace(common, dtypes=(np.dtype("float32"),), shapes=((3,),))

    def _choose_set(self) -> Set:
        return self.world if self._random.random() < 0.6 else self._random.choice(self._sets)

    def _blocking(self, name: str) -> Operation:
        kind = self._random.choices(("barrier", "objects", "tensors"), (3, 1, 6))[0]
        if kind != "tensors":
            chosen = self._choose_set()
            return Operation(self._next(), kind, chosen, kind, present=chosen.members, blocking=True)
        return replace(self._operation(name), blocking=True)

    def _operation(self, name: str, kind: str | None = None) -> Operation:
        """A new one, or once more what had this name, so that the engine remembers it."""
        draw = self._random
        known = self._templates.get(name)
        if known is None or known.set not in self._sets or draw.random() < 0.3:
            known = self._templates[name] = self._draw(name, kind)
        named = draw.random() < 0.7 or not self._has("unnamed") or self._joined_unevenly
        operation = replace(known, number=self._next(), name=name if named else None)
        members = operation.set.members
        if self._has("mismatch") and len(members) > 1 and draw.random() < 0.02:
            return self._with_mismatch(operation)
        return operation

    def _with_mismatch(self, operation: Operation) -> Operation:
        what = ["dtype", "shape"]
        if operation.kind in REDUCING:
            what.append("factor")
        if operation.kind == "broadcast":
            what.append("root")
        return replace(
            operation, wrong=(self._random.choice(operation.set.members), self._random.choice(what))
        )

    def _draw(self, name: str, kind: str | None = None) -> Operation:
        draw = self._random
        kind = kind or draw.choices(list(KINDS), list(KINDS.values()))[0]
        chosen = self._choose_set()
        members = chosen.members
        dtype = draw.choice(ALL)
        count = draw.choice((1, 2, 3, 5)) if kind.startswith("grouped") else 1
        mixed = draw.random() < 0.3
        dtypes = tuple(draw.choice(ALL) if mixed else dtype for _ in range(count))
        common = Operation(0, kind, chosen, name, present=members)
        if kind in GATHERING:
            return self._draw_gathering(common, dtypes)
        shapes = tuple(self._shape(each, scalar="reducescatter" not in kind) for each in dtypes)
        common = replace(common, dtypes=dtypes, shapes=shapes)
        if kind == "broadcast":
            return replace(common, root=draw.choice(members), in_place=draw.random() < 0.3)
        if kind in ("reducescatter", "grouped_reducescatter"):
            op = draw.choice((hvd.Sum, hvd.Average))
        else:
            op = self._reduction(dtypes, chosen)
            common = replace(common, in_place=draw.random() < (0.3 if count == 1 else 0.7))
        if not self._has("average") and any(each not in FLOATING + COMPLEX for each in dtypes):
            op = hvd.Sum if op == hvd.Average else op
        common = replace(common, op=op)
        if self._has("scale") and op != hvd.Adasum and draw.random() < 0.15:
            integers = any(each in INTEGER for each in dtypes)
            factors = INTEGER_FACTORS if integers else FACTORS
            # How an average of integers is scaled is nobody's business.
            after = 1.0 if integers and op == hvd.Average else draw.choice([1.0, *factors])
            common = replace(common, prescale=draw.choice([1.0, *factors]), postscale=after)
        return common

    def _reduction(self, dtypes: tuple[np.dtype[Any], ...], chosen: Set) -> int:
        draw = self._random
        if any(dtype in COMPLEX for dtype in dtypes):
            return draw.choice((hvd.Sum, hvd.Average))
        adasum = self._has("adasum") and chosen is self.world and self.size & (self.size - 1) == 0
        if adasum and all(dtype in (np.float32, np.float64) for dtype in dtypes) and draw.random() < 0.1:
            return hvd.Adasum
        return draw.choice((hvd.Sum, hvd.Sum, hvd.Average, hvd.Min, hvd.Max, hvd.Product))

    def _draw_gathering(self, common: Operation, dtypes: tuple[np.dtype[Any], ...]) -> Operation:
        draw, members = self._random, len(common.set.members)
        shapes = tuple(draw.choice(((), (), (3,), (2, 5), (0,))) for _ in dtypes)
        rows = []
        for dtype, shape in zip(dtypes, shapes, strict=True):
            average = self._bytes() // (dtype.itemsize * max(1, int(np.prod(shape))))
            average //= draw.choice((1, members))
            rows.append(tuple(draw.randint(0, 2 * average + 1) for _ in range(members)))
        if common.kind != "alltoall":
            return replace(common, dtypes=dtypes, shapes=shapes, rows=tuple(rows))
        if draw.random() < 0.3:
            even = tuple(count // members * members for count in rows[0])
            return replace(common, dtypes=dtypes, shapes=shapes, rows=(even,))
        splits = []
        for count in rows[0]:
            cuts = sorted(draw.randint(0, count) for _ in range(members))  # what is after the last is ignored
            splits.append(tuple(b - a for a, b in zip([0, *cuts], cuts, strict=False)))
        return replace(common, dtypes=dtypes, shapes=shapes, rows=tuple(rows), splits=tuple(splits))

    def _bytes(self) -> int:
        draw = self._random
        if self._has("large") and draw.random() < 0.006:
            return draw.randint(*LARGE)
        _, low, high = draw.choices(SIZES, [weight for weight, _, _ in SIZES])[0]
        return draw.randint(low, high)

    def _shape(self, dtype: np.dtype[Any], scalar: bool) -> tuple[int, ...]:
        draw = self._random
        elements = self._bytes() // dtype.itemsize
        if scalar and draw.random() < 0.05:
            return ()
        form = draw.random()
        if form < 0.7:
            return (elements,)
        if form < 0.85:
            return (elements // 3 + 1, 3)
        return (elements // 10, 2, 5) if form < 0.95 else (elements // 100, 0)

    def _join(self, name: str) -> Join:
        draw = self._random
        count = draw.choice((0, 1, 3, 10, 25))
        counts = tuple(draw.choice((count, count, draw.randint(0, count))) for _ in range(self.size))
        count = max(counts)
        uneven = min(counts) < count
        operations = []
        for i in range(count):
            here = {rank for rank, done in enumerate(counts) if done > i}
            operation = self._join_operation(f"{name}.{i}")
            members = operation.set.members
            operations.append(
                replace(operation, present=tuple(rank for rank in members if rank in here), wrong=None)
            )
        if uneven and not self._has("unnamed-after-join"):
            self._joined_unevenly = True
        return Join(tuple(operations), counts, wait=not self._has("join-pending") or draw.random() < 0.3)

    def _join_operation(self, name: str) -> Operation:
        draw = self._random
        while True:
            operation = self._blocking(name) if draw.random() < 0.15 else self._operation(name)
            if operation.kind in ("allreduce", "grouped_allreduce"):
                allowed = (hvd.Sum, hvd.Average)
                if operation.op in allowed or (self._has("join-other-ops") and operation.op != hvd.Adasum):
                    return operation
            elif operation.kind == "barrier" or (self._has("join-errors") and draw.random() < 0.1):
                return operation
            self._templates.pop(name, None)
