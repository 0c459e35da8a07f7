"""One rank of the mixture: carries the plan out in its own order, at its own pace, and checks each result."""

from __future__ import annotations

import faulthandler
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from mixture_memory import Memory
from mixture_plan import WINDOWS_IN_FLIGHT, Add, Join, Operation, Plan, Remove, Rounds, Set, Step, Submit
from mixture_values import Values, difference

import horovod.numpy as hvd

PATIENCE = 40.0  # seconds without progress after which a rank gives up
LAST_WORDS = 3.0  # seconds that the others get to tell where they hang


_NOT_WAITING = {"allreduce": hvd.allreduce_async, "allreduce_": hvd.allreduce_async_}


class Wrong(Exception):
    """What must not be."""


@dataclass
class Pending:
    """An operation that was submitted; `waiter` if another thread waits for it."""

    operation: Operation
    window: int
    handle: int
    waiter: Future[Any] | None = None


class Rank:
    """What one process does."""

    def __init__(self, plan: Plan, seed: int) -> None:
        self.rank = hvd.rank()
        self.operations = 0
        self.compared = 0
        self._plan = plan
        self._values = Values(seed)
        self._memory = Memory(seed, self.rank)
        self._random = random.Random(f"{seed} rank {self.rank}")
        self._window = 0
        self._pending: list[Pending] = []
        self._doing = "starting"
        self._progress = 0
        self._ended = False
        self._sets: list[Set] = []
        self._waiting_thread = ThreadPoolExecutor(1)
        self._submitting_thread = ThreadPoolExecutor(1)
        threading.Thread(target=self._watch, daemon=True).start()

    def run(self, seconds: float, windows: int) -> None:
        """Until the time is over on rank 0, or so many windows are done."""
        end = time.monotonic() + seconds
        answers: list[int] = []
        for steps in self._plan.windows():
            if self._window == windows:
                break
            self._wait_for([each for each in self._pending if each.window < self._window - WINDOWS_IN_FLIGHT])
            if len(answers) == 2 and not hvd.synchronize(answers.pop(0))[0]:
                break
            question = f"go on {self._window % 2}"  # the answer to the last but one is known
            answers.append(hvd.broadcast_async(np.array([time.monotonic() < end]), 0, name=question))
            for step in steps:
                self._do(step)
            self._window += 1
        self._wait_for(list(self._pending))
        for answer in answers:
            hvd.synchronize(answer)
        for chosen in self._sets:
            hvd.remove_process_set(chosen.handle)
        self._waiting_thread.shutdown()
        self._submitting_thread.shutdown()
        self._ended = True
        if not self._values.unharmed():
            raise Wrong("the engine has written to memory that it was only to read")

    def _do(self, step: Step) -> None:
        match step:
            case Submit():
                self._submit_all(step.operations)
            case Rounds():
                self._do_rounds(step)
            case Add():
                self._doing = f"adding process set {step.set.members}"
                step.set.handle = hvd.add_process_set(step.set.members)
                self._sets.append(step.set)
            case Remove():
                self._remove(step)
            case Join():
                self._join(step)
        self._progress += 1

    def _remove(self, step: Remove) -> None:
        if step.wait:
            self._wait_for([each for each in self._pending if each.operation.set is step.set])
        self._doing = f"removing process set {step.set.members}"
        abandoned = None
        if step.abandoned is not None and self.rank in step.abandoned.present:
            abandoned = self._start(step.abandoned)
        if not hvd.remove_process_set(step.set.handle):
            raise Wrong(f"process set {step.set.members} could not be removed")
        self._sets.remove(step.set)
        if abandoned is None:
            return
        try:
            hvd.synchronize(abandoned)
        except (ValueError, hvd.HorovodInternalError):
            return
        raise Wrong(f"without all ranks of its set this was done: {step.abandoned}")

    def _join(self, step: Join) -> None:
        part: list[Operation] = []
        for operation in step.operations[: step.counts[self.rank]]:
            if operation.blocking:
                self._submit_all(part)
                part = []
                self._submit_all([operation])
            else:
                part.append(operation)
        self._submit_all(part)
        if step.wait:
            self._wait_for(list(self._pending))
        self._doing = f"joining after {step.counts} operations"
        last = hvd.join()
        for each in self._pending:
            if each.waiter is None and not hvd.poll(each.handle):
                raise Wrong(f"after join() this is not done: {each.operation.number} {each.operation}")
        all_say = hvd.allgather(np.array([last], np.int32), name="who was last").tolist()
        if len(set(all_say)) != 1 or not 0 <= last < hvd.size():
            raise Wrong(f"the ranks do not agree on which of them joined last: {all_say}")

    def _submit_all(self, operations: Iterable[Operation]) -> None:
        """Those that concern this rank, shuffled; un-named ones of a kind and set stay in order."""
        mine = [each for each in operations if self.rank in each.present]
        self._random.shuffle(mine)
        unnamed: dict[object, list[Operation]] = {}
        for operation in sorted(mine, key=lambda each: each.number):
            if operation.name is None:
                unnamed.setdefault(operation.order_key, []).append(operation)
        older = list(self._pending)
        self._random.shuffle(older)
        others: Future[list[Pending]] | None = None
        if len(mine) > 4 and self._random.random() < 0.2:
            theirs = [each for each in mine if each.name is not None][::2]
            mine = [each for each in mine if each not in theirs]
            others = self._submitting_thread.submit(self._start_all, theirs)
        for operation in mine:
            if operation.name is None:
                operation = unnamed[operation.order_key].pop(0)
            self._pause()
            self._submit(operation)
            # The others have submitted what is older, or will without this rank's help.
            if older and self._random.random() < 0.2:
                self._wait(older.pop())
        if others is not None:
            self._pending += others.result()

    def _start_all(self, operations: list[Operation]) -> list[Pending]:
        """On another thread."""
        self.operations += len(operations)
        return [Pending(each, self._window, self._start(each)) for each in operations]

    def _pause(self) -> None:
        fate = self._random.random()
        if fate < 0.85:
            return
        if fate < 0.95:
            os.sched_yield()
        else:
            time.sleep(0.02 if fate > 0.9995 else self._random.uniform(1e-5, 2e-3))

    def _submit(self, operation: Operation) -> None:
        self._doing = f"{operation.number} {operation}"
        self.operations += 1
        self._progress += 1
        if operation.kind == "barrier":
            hvd.barrier(operation.set.handle)
            return
        if operation.kind == "objects":
            return self._gather_objects(operation)
        if self._random.random() < 0.005:
            self._be_refused(operation)
        pending = Pending(operation, self._window, self._start(operation))
        self._pending.append(pending)
        if operation.blocking:
            self._wait(pending)
        elif self._random.random() < 0.1:
            pending.waiter = self._waiting_thread.submit(hvd.synchronize, pending.handle)

    def _do_rounds(self, step: Rounds) -> None:
        """Prepared before and checked after, so that the ranks come at about the same time."""
        if step.wait:
            self._wait_for(list(self._pending))
        functions = {"allreduce": hvd.allreduce, "allreduce_": hvd.allreduce_}
        calls = [(each, self._call(each, functions)) for each in step.operations if self.rank in each.present]
        outcomes: list[tuple[Operation, Any, Exception | None]] = []
        for operation, call in calls:
            fate = self._random.random()
            if fate < 0.1:
                self._pause()
            if fate > 0.97:
                self._submit(operation)
                continue
            self.operations += 1
            self._progress += 1
            try:
                outcomes.append((operation, call(), None))
            except hvd.HorovodInternalError as error:
                outcomes.append((operation, None, error))
        for operation, result, failure in outcomes:
            self._check(operation, result, failure)

    def _gather_objects(self, operation: Operation) -> None:
        try:
            objects = hvd.allgather_object((operation.number, self.rank), process_set=operation.set.handle)
        except hvd.HorovodInternalError:
            if operation.fails:
                return
            raise
        if operation.fails or objects != [(operation.number, rank) for rank in operation.present]:
            raise Wrong(f"operation {operation.number}: the objects of {operation} are {objects}")

    def _be_refused(self, operation: Operation) -> None:
        """What is refused on one rank has no effect on any."""
        members, own = operation.set.members, {"process_set": operation.set.handle}
        attempts: list[Callable[[], int]] = [
            lambda: hvd.alltoall_async(np.ones(9), splits=[1] * (len(members) + 1), **own),
            lambda: hvd.broadcast_async(np.ones(9), hvd.size(), **own),
            lambda: hvd.allreduce_async(np.ones(9, np.uint64), **own),
        ]
        try:
            self._random.choice(attempts)()
        except ValueError:
            return
        raise Wrong("a mistake was accepted")

    def _start(self, operation: Operation) -> int:
        """The handle."""
        handle: int = self._call(operation, _NOT_WAITING)()
        return handle

    def _call(self, operation: Operation, allreduces: Mapping[str, Callable[..., Any]]) -> Callable[[], Any]:
        """That of this operation, ready to be made."""
        name, options = operation.name, {"process_set": operation.set.handle}
        root = operation.root
        if operation.wrong is not None and operation.wrong[0] == self.rank:
            operation, root = self._mistaken(operation)
        arrays = [self._values.get(operation, self.rank, i) for i in range(len(operation.dtypes))]
        arrays = self._memory.place(operation, arrays)
        match operation.kind:
            case "allgather":
                return partial(hvd.allgather_async, arrays[0], name, **options)
            case "grouped_allgather":
                return partial(hvd.grouped_allgather_async, arrays, name, **options)
            case "broadcast":
                submit = hvd.broadcast_async_ if operation.in_place else hvd.broadcast_async
                return partial(submit, arrays[0], root, name, **options)
            case "alltoall":
                index = operation.set.members.index(self.rank)
                splits = None if operation.splits is None else operation.splits[index]
                return partial(hvd.alltoall_async, arrays[0], splits, name, **options)
        options |= {
            "name": name,
            "op": operation.op,
            "prescale_factor": operation.prescale,
            "postscale_factor": operation.postscale,
        }
        match operation.kind:
            case "allreduce":
                submit = allreduces["allreduce_" if operation.in_place else "allreduce"]
                return partial(submit, arrays[0], **options)
            case "grouped_allreduce":
                submit = hvd.grouped_allreduce_async_ if operation.in_place else hvd.grouped_allreduce_async
                return partial(submit, arrays, **options)
            case "reducescatter":
                return partial(hvd.reducescatter_async, arrays[0], **options)
            case "grouped_reducescatter":
                return partial(hvd.grouped_reducescatter_async, arrays, **options)
        raise AssertionError(operation.kind)

    def _mistaken(self, operation: Operation) -> tuple[Operation, int]:
        """The operation and its root as the rank that disagrees has them."""
        assert operation.wrong is not None
        members = operation.set.members
        match operation.wrong[1]:
            case "dtype":
                other = "int32" if operation.dtypes[0] != np.int32 else "float32"
                return replace(operation, dtypes=(np.dtype(other), *operation.dtypes[1:])), operation.root
            case "factor":
                return replace(operation, prescale=operation.prescale * 2), operation.root
            case "root":
                index = (members.index(operation.root) + 1) % len(members)
                return operation, members[index]
        shape = operation.shapes[0]
        shape = (*shape, 2) if operation.rows or not shape else (*shape[:-1], shape[-1] + 1)
        return replace(operation, shapes=(shape, *operation.shapes[1:])), operation.root

    def _wait_for(self, chosen: list[Pending]) -> None:
        self._random.shuffle(chosen)
        for each in chosen:
            self._wait(each)

    def _wait(self, pending: Pending) -> None:
        if not any(each is pending for each in self._pending):
            return
        operation = pending.operation
        self._doing = f"waiting for {operation.number} {operation}"
        result, failure = None, None
        try:
            if pending.waiter is not None:
                result = pending.waiter.result()
            else:
                if self._random.random() < 0.1:
                    while not hvd.poll(pending.handle):
                        os.sched_yield()
                result = hvd.synchronize(pending.handle)
        except hvd.HorovodInternalError as error:
            failure = error
        self._pending = [each for each in self._pending if each is not pending]
        self._check(operation, result, failure)

    def _check(self, operation: Operation, result: Any, failure: Exception | None) -> None:
        self._progress += 1
        if not self._memory.unharmed(operation):
            raise Wrong(f"operation {operation.number} has written beside its results: {operation}")
        if operation.fails or failure is not None:
            if not operation.fails:
                raise Wrong(f"operation {operation.number} failed: {failure}\n{operation}")
            if failure is None:
                raise Wrong(f"operation {operation.number} should have failed: {operation}")
            return
        self._compare(operation, result)

    def _compare(self, operation: Operation, result: Any) -> None:
        results = result if isinstance(result, tuple) else (result,)
        expected = self._values.expected(operation, self.rank)
        for index, (actual, wanted) in enumerate(zip(results, expected, strict=True)):
            wrong = difference(actual, wanted, operation.op != hvd.Adasum)
            self.compared += 1
            if wrong is not None:
                raise Wrong(f"operation {operation.number}, result {index}: {wrong}\n{operation}")

    def _watch(self) -> None:
        before, since = -1, time.monotonic()
        while not self._ended:
            time.sleep(1)
            if self._progress != before:
                before, since = self._progress, time.monotonic()
            elif time.monotonic() - since > PATIENCE:
                return self._give_up()

    def _give_up(self) -> None:
        lines = [f"rank {self.rank} has made no progress for {PATIENCE:.0f} s while {self._doing}; pending:"]
        lines += [f"  {each.operation.number} {each.operation}" for each in self._pending]
        print("\n".join(lines), file=sys.stderr, flush=True)
        faulthandler.dump_traceback(all_threads=True)
        time.sleep(LAST_WORDS)
        os._exit(3)
