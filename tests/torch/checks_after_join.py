"""Operations without a name, and what is built from operations, work once ranks have joined unevenly."""

from __future__ import annotations

import torch

import horovod.torch as hvd


def join_unevenly() -> None:
    for _ in range(hvd.rank() + 1):
        hvd.allreduce(torch.ones(3), op=hvd.Sum)
        hvd.grouped_allreduce([torch.ones(2), torch.ones(3)], op=hvd.Sum)
    hvd.join()


def check_operations() -> None:
    join_unevenly()
    size, rank = hvd.size(), hvd.rank()
    for _ in range(2):
        assert hvd.allreduce(torch.ones(3), op=hvd.Sum).tolist() == [size] * 3
        assert hvd.allreduce_(torch.ones(3), op=hvd.Sum).tolist() == [size] * 3
        assert hvd.grouped_allreduce([torch.ones(1)] * 2, op=hvd.Sum)[1].tolist() == [size]
        assert hvd.allgather(torch.tensor([rank])).tolist() == list(range(size))
        assert hvd.broadcast(torch.tensor([rank]), size - 1).tolist() == [size - 1]
        assert hvd.alltoall(torch.arange(size)).tolist() == [rank] * size
        assert hvd.reducescatter(torch.arange(size), op=hvd.Sum).tolist() == [size * rank]
        assert hvd.broadcast_object(("rank", rank), size - 1) == ("rank", size - 1)
        assert hvd.allgather_object({rank}) == [{each} for each in range(size)]


def check_gradients_of_operations() -> None:
    join_unevenly()
    tensor = torch.ones(3, requires_grad=True)
    hvd.allreduce(tensor, op=hvd.Sum).sum().backward()
    assert tensor.grad is not None and tensor.grad.tolist() == [hvd.size()] * 3


def check_sparse() -> None:
    join_unevenly()
    tensor = torch.sparse_coo_tensor(torch.tensor([[hvd.rank()]]), torch.ones(1), (hvd.size(),))
    result = hvd.sparse_allreduce_async(tensor, "sparse", hvd.Sum)()
    assert result.to_dense().tolist() == [1.0] * hvd.size()


def check_sync_batch_norm() -> None:
    join_unevenly()
    layer = hvd.SyncBatchNorm(2, affine=False)
    result = layer(torch.full((1, 2), float(hvd.rank())))
    everyone = hvd.allgather(result)
    assert torch.allclose(everyone.sum(0), torch.zeros(2), atol=1e-5), everyone
    assert len(everyone) == 1 or everyone[0, 0] < everyone[-1, 0], everyone


def check_optimizer() -> None:
    """Ranks with more batches than others, as one joins for; then the next epoch."""
    torch.manual_seed(1)
    model = torch.nn.Linear(3, 2)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), 0.1), named_parameters=model.named_parameters()
    )
    unnamed = torch.nn.Linear(3, 2)
    second = hvd.DistributedOptimizer(torch.optim.SGD(unnamed.parameters(), 0.1))
    for _ in range(2):
        hvd.broadcast_parameters(model.state_dict(), 0)
        hvd.broadcast_optimizer_state(optimizer, 0)
        hvd.broadcast_parameters(list(unnamed.parameters()), 0)
        for step in range(hvd.rank() + 1):
            for each, steps in ((model, optimizer), (unnamed, second)):
                steps.zero_grad()
                each(torch.full((1, 3), float(hvd.rank() + step))).sum().backward()
                steps.step()
        hvd.join()
    assert hvd.allgather_object(0) == [0] * hvd.size()
