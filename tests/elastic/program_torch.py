"""Trains a small model with PyTorch while ranks come and go, as a plan says; see scenario.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scenario import Scenario, faulty, finished

import horovod.torch as hvd

torch.set_num_threads(1)
BATCH = 2
scenario = Scenario()
# What takes long is done before: the others go on as long as this process is not ready.
torch.optim.Adam([torch.zeros(1, requires_grad=True)])
new_state = faulty(hvd.elastic.TorchState, scenario)
hvd.init()
torch.manual_seed(1234 + scenario.start_rank)  # only sync() makes them the same

samples = np.arange(2 * BATCH * scenario.batches * 8)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2))
optimizer: Any = torch.optim.Adam(model.parameters(), lr=0.01 * hvd.size())
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=100)
sampler = hvd.elastic.ElasticSampler(samples, seed=7)
state = new_state(
    model,
    optimizer,
    sampler=sampler,
    scheduler=scheduler,
    epoch=0,
    batch=0,
    commits=0,
    rendezvous=0,
    processed=0,
)


def set_rate() -> None:
    for group in optimizer.param_groups:
        group["lr"] = 0.01 * hvd.size()


state.register_reset_callbacks([set_rate])


def arrays() -> list[Any]:
    """Parameters, momentum and counters of steps."""
    found = [value.detach().numpy() for value in model.parameters()]
    by_parameter = optimizer.state_dict()["state"]
    for number in sorted(by_parameter):
        found += [torch.as_tensor(value).numpy() for _, value in sorted(by_parameter[number].items())]
    return [
        *found,
        np.array([group["lr"] for group in optimizer.param_groups]),
        np.array(sampler.processed_num),
    ]


@hvd.elastic.run
def train(state: Any) -> None:
    scenario.begin(state, arrays(), [value.numpy() for value in model.buffers()])
    while not scenario.complete(state):
        assert sampler.processed_num == state.processed, (sampler.processed_num, state.processed)
        chosen = iter(sampler)
        while state.batch < scenario.batches:
            scenario.before_batch(state)
            numbers = [next(chosen) for _ in range(BATCH)]
            inputs = torch.tensor([[number % k / k for k in (3, 5, 7, 11)] for number in numbers])
            optimizer.zero_grad()
            model(inputs).square().sum().backward()
            optimizer.step()
            sampler.record_batch(state.batch, BATCH)
            state.processed += BATCH * hvd.size()
            state.batch += 1
            state.commits += 1
            state.commit()
        scheduler.step()
        scenario.after_epoch(state, processed=sampler.processed_num)
        sampler.set_epoch(state.epoch + 1)
        state.processed = 0
        state.batch = 0
        state.epoch += 1
        state.commits += 1
        state.commit()


finished(scenario, lambda: train(state))
