"""Collectives on values, and the rest of the module's functions."""

from __future__ import annotations

import numpy as np
from keras_setup import hvd
from util_expect import raises


def check_values() -> None:
    rank, size = hvd.rank(), hvd.size()
    mean = sum(range(size)) / size
    assert float(hvd.allreduce(float(rank), name="x")) == mean
    assert float(hvd.allreduce(float(rank), average=False)) == mean * size
    assert (
        float(hvd.allreduce(float(rank), op=hvd.Sum, prescale_factor=2.0, postscale_factor=0.5))
        == mean * size
    )
    vector = np.arange(4, dtype="float32") + rank
    np.testing.assert_allclose(
        np.asarray(hvd.allreduce(vector, compression=hvd.Compression.fp16)), np.arange(4) + mean
    )
    gathered = np.asarray(hvd.allgather(np.full((rank + 1, 2), rank)))
    np.testing.assert_array_equal(gathered[:, 0], np.repeat(np.arange(size), np.arange(size) + 1))
    np.testing.assert_array_equal(np.asarray(hvd.broadcast(vector, root_rank=1)), np.arange(4) + 1)
    rows = np.asarray(hvd.reducescatter(np.ones((size + 1, 2), "float32"), op=hvd.Sum))
    assert rows.shape == (2 if rank == 0 else 1, 2) and (rows == size).all()
    with raises(ValueError):
        hvd.allreduce(1.0, average=True, op=hvd.Sum)


def check_no_global_variables_without_a_graph() -> None:
    with raises(RuntimeError, "roadcast"):
        hvd.broadcast_global_variables(0)


def check_basics() -> None:
    assert hvd.is_initialized() and hvd.size() == 2 and hvd.local_size() == 2
    assert hvd.Average == 0 and hvd.Sum == 1
    assert hvd.global_process_set.size() == 2
    assert isinstance(hvd.nccl_built(), int) and hvd.mpi_enabled() in (True, False)
