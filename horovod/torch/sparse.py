"""The sum of sparse tensors: their entries gathered, without making them dense."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from horovod.common.basics import Average, Sum
from horovod.common.handles import table
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.errors import HorovodInternalError
from horovod.torch.ops import allgather_async


def sparse_allreduce_async(
    tensor: Tensor, name: str | None, op: int, process_set: ProcessSet = global_process_set
) -> Callable[[], Tensor]:
    """Sum or Average of sparse COO tensors of one shape; the average of integers is floating.

    Returns a function that waits and gives a new sparse tensor, which is not coalesced: it has the
    entries of all ranks. Called again it gives the same tensor.
    """
    if tensor.layout is not torch.sparse_coo:
        raise ValueError(f"sparse_allreduce_async() needs a sparse COO tensor, got {tensor.layout}")
    if op not in (Average, Sum):
        raise NotImplementedError("sparse tensors can be reduced with hvd.Average and hvd.Sum only")
    tensor = tensor.detach()
    size = process_set.size() or 1
    # Without a name the indices come first on all ranks, and so both are matched.
    indices = allgather_async(tensor._indices().t(), name and f"{name}.indices", process_set)
    values = allgather_async(tensor._values(), name and f"{name}.values", process_set)
    gathered: list[Tensor] = []
    finished: list[Tensor] = []

    def finish() -> Tensor:
        if not finished:
            # Both are waited for, or else an error of the first would leave the second behind.
            try:
                if not gathered:
                    gathered.append(table.synchronize(indices))
            except HorovodInternalError:  # not Ctrl-C: then this is called again
                table.synchronize(values)
                raise
            all_indices, all_values = gathered[0], table.synchronize(values)
            if op == Average:
                # Integers become floating numbers, as in any division of torch's: these are parts
                # of sums, and truncated parts would add up to something else.
                floating = all_values.is_floating_point() or all_values.is_complex()
                all_values = all_values.div_(size) if floating else all_values / size
            try:
                # Indices of other ranks: one that is too large for this shape would write anywhere.
                result = torch.sparse_coo_tensor(
                    all_indices.t(), all_values, tensor.shape, check_invariants=True
                )
            except RuntimeError as error:
                raise HorovodInternalError(
                    f"sparse tensor {name}: entries of another rank don't fit in the shape "
                    f"{list(tensor.shape)} of this one: {error}"
                ) from error
            finished.append(result)
        return finished[0]

    return finish
