"""Torch tensors as tensors for the collectives: their
memory is used where it is, by its address."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from horovod import _core
from horovod.common.collectives import Collectives

# bool and the float and complex types have the same names here and there.
_codes: dict[torch.dtype, int] = {
    getattr(torch, name): code for code, name in enumerate(_core.DTYPES) if hasattr(torch, name)
}


class TorchAdapter:
    """api.Adapter of torch tensors.

    Contiguous CPU tensors are used as they are. Others travel as copies in host memory, also those
    on `staged_devices`, which are copied when the operation is submitted and when its result is
    taken.
    """

    def __init__(self, staged_devices: frozenset[str] = frozenset({"cuda"})) -> None:
        self._staged_devices = staged_devices

    def readable(self, tensor: Tensor) -> Tensor:
        if not isinstance(tensor, Tensor):
            raise ValueError(f"a torch tensor is needed, got {type(tensor).__name__}")
        return tensor

    def writable(self, tensor: Tensor) -> Tensor:
        self.readable(tensor)
        if not tensor.is_contiguous() and _overlaps(tensor):
            raise ValueError(
                "an operation in place needs a tensor whose elements have a place each, got one of shape "
                f"{list(tensor.shape)} that was expanded; use tensor.clone()"
            )
        # As for any operation in place: autograd must see that what it saved for backward() has
        # changed.
        increment_version(tensor)
        return tensor

    def staged(self, tensor: Tensor) -> Tensor:
        if tensor.is_cpu:
            # Lazily conjugated or negated memory has other values than the tensor.
            if tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg():
                return tensor
            if tensor.layout is not torch.strided:
                raise ValueError(
                    f"a tensor of layout {tensor.layout} is not supported; use hvd.sparse_allreduce_async() "
                    "for sparse COO tensors, or tensor.to_dense()"
                )
            return torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu").copy_(tensor.detach())
        if (device := tensor.device.type) not in self._staged_devices:
            raise ValueError(
                f"a tensor on device {device!r} is not supported; use one on the CPU or on "
                f"{', '.join(sorted(self._staged_devices))}"
            )
        # Pinned memory is what the device copies to and from fastest. This waits for the device.
        host = torch.empty(
            tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=torch.cuda.is_available()
        )
        return host.copy_(tensor.detach())

    def empty_like(self, tensor: Tensor) -> Tensor:
        return torch.empty_like(tensor)

    def describe(self, tensor: Tensor) -> tuple[int, Sequence[int], int]:
        code = _codes.get(tensor.dtype)
        if code is None:
            raise ValueError(
                f"dtype {tensor.dtype} is not supported; use one of {', '.join(map(str, _codes))}"
            )
        return tensor.data_ptr(), tensor.shape, code

    def assign(self, target: Tensor, source: Tensor) -> None:
        # Autograd refuses to write to a leaf that requires a gradient, but not to its detached
        # alias.
        target.detach().copy_(source, non_blocking=True)

    def unstaged(self, staged: Tensor, tensor: Tensor) -> Tensor:
        if tensor.is_cpu:
            return staged
        return tensor.detach().new_empty(staged.shape).copy_(staged, non_blocking=True)

    def wrap(self, memory: _core.Memory | None, shape: tuple[int, ...], like: Tensor) -> Tensor:
        if memory is None:
            return torch.empty(shape, dtype=like.dtype, device=like.device)
        host = torch.from_numpy(np.asarray(memory)).view(like.dtype).view(shape)
        return self.unstaged(host, like)

    def splits_to_list(self, splits: Any) -> list[int]:
        if not isinstance(splits, Tensor):
            try:
                splits = torch.tensor(splits, dtype=torch.int32, device="cpu")
            except (TypeError, ValueError, RuntimeError) as error:
                raise ValueError(f"splits must be a list of ints or a 1-D int32 tensor: {error}") from error
        if splits.dim() != 1 or splits.dtype != torch.int32:
            raise ValueError(
                f"splits must be 1-D and int32, got {splits.dim()}-D {splits.dtype}; use splits.int()"
            )
        result: list[int] = splits.tolist()
        return result

    def splits_from_list(self, splits: list[int]) -> Tensor:
        return torch.tensor(splits, dtype=torch.int32, device="cpu")


def _overlaps(tensor: Tensor) -> bool:
    return any(size > 1 and stride == 0 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


collectives: Collectives[Tensor] = Collectives(TorchAdapter())
