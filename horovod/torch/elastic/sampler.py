"""Which samples each rank takes, so that none is lost or repeated when the number of ranks changes."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterable, Iterator, Sized
from typing import Any

from torch.utils.data import Sampler

from horovod.common.basics import rank, size
from horovod.common.util import warn_deprecated


class ElasticSampler(Sampler[int]):
    """Deals a data set out to the ranks and knows what has been processed in this epoch.

    Give it to the DataLoader and, under any name, to TorchState. Call record_batch() after each batch
    and set_epoch() at the end of each epoch; when the ranks have changed, what is left of the epoch
    is dealt out anew. All ranks get the same number of samples: some are used twice in the last
    batches of an epoch unless its rest can be divided.
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> None:
        """`shuffle`: another order in each epoch, the same on all ranks, which `seed` decides."""
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self.processed_num = 0
        self.num_replicas = 1
        self.rank = 0
        self.num_samples = 0
        self.total_size = 0
        self.remaining_indices: list[int] = []
        self.indices: list[int] = []
        self.processed_indices: set[int] = set()  # of programs for versions up to 0.23; stays empty
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch. To be called at the end of the one before, not at the start: a process that
        joins has the half-done epoch of the others then."""
        self.epoch = epoch
        self.processed_num = 0
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Counts one batch as processed on every rank. Call it on all ranks, before state.commit()."""
        self.processed_num += batch_size * self.num_replicas

    def reset(self) -> None:
        """Deals the rest of the epoch out to the ranks of now."""
        with contextlib.suppress(ValueError):  # no world: the next one is still to come, with another call
            self.num_replicas, self.rank = size(), rank()
        order = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(order)
        self.remaining_indices = order[self.processed_num :]
        self.num_samples = -(-len(self.remaining_indices) // self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def state_dict(self) -> dict[str, Any]:
        """How far the epoch is."""
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on from there, with the ranks of now."""
        self.epoch = state_dict["epoch"]
        if "processed_num" in state_dict:
            self.processed_num = state_dict["processed_num"]
        else:  # written by a version up to 0.23
            self.processed_num = len(state_dict["processed_indices"])
        self.reset()

    def __iter__(self) -> Iterator[int]:
        self.indices = list(self.remaining_indices)
        while len(self.indices) < self.total_size:
            self.indices += self.remaining_indices[: self.total_size - len(self.indices)]
        return iter(self.indices[self.rank :: self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples

    def get_indices(self, batch_idx: int, batch_size: int) -> list[int]:
        """The samples of one batch of this rank. Deprecated: record_batch() needs only their number."""
        warn_deprecated("get_indices() is deprecated: use record_batch(batch_idx, batch_size)")
        own = self.indices[self.rank :: self.num_replicas]
        return own[batch_idx * batch_size : (batch_idx + 1) * batch_size]

    def record_indices(self, indices: Iterable[int]) -> None:
        """Counts these as processed, and as many on every other rank. Deprecated: use record_batch()."""
        warn_deprecated("record_indices() is deprecated: use record_batch(batch_idx, batch_size)")
        self.processed_num += len(list(indices)) * self.num_replicas
