"""ElasticSampler: over any sequence of changes, committed batches have each sample exactly once."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

pytest.importorskip("torch")

from torch.utils.data import DataLoader

from horovod.torch.elastic import ElasticSampler
from horovod.torch.elastic import sampler as module


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Rank and size as the samplers see them."""
    place = {"rank": 0, "size": 1}
    monkeypatch.setattr(module, "rank", lambda: place["rank"])
    monkeypatch.setattr(module, "size", lambda: place["size"])
    return place


def samplers(world: dict[str, int], size: int, length: int, **options: Any) -> list[ElasticSampler]:
    """Those of all ranks."""
    made = []
    for rank in range(size):
        world.update(rank=rank, size=size)
        made.append(ElasticSampler(range(length), **options))
    return made


def test_order_is_the_same_for_any_size(world: dict[str, int]) -> None:
    one = samplers(world, 1, 20, seed=3)[0]
    order = list(range(20))
    random.Random(3).shuffle(order)
    assert list(one) == order == one.remaining_indices
    dealt = [list(each) for each in samplers(world, 4, 20, seed=3)]
    assert [dealt[i % 4][i // 4] for i in range(20)] == order
    assert list(samplers(world, 1, 5, shuffle=False)[0]) == [0, 1, 2, 3, 4]


def test_each_epoch_has_its_own_order(world: dict[str, int]) -> None:
    one = samplers(world, 1, 50)[0]
    first = list(one)
    one.record_batch(0, 10)
    one.set_epoch(1)
    assert one.processed_num == 0
    assert sorted(one) == sorted(first) and list(one) != first


def test_numbers(world: dict[str, int]) -> None:
    one = samplers(world, 3, 10)[1]
    assert (one.num_replicas, one.rank, one.num_samples, one.total_size, len(one)) == (3, 1, 4, 12, 4)
    one.record_batch(0, 2)
    assert one.processed_num == 6
    one.reset()
    assert (len(one.remaining_indices), one.num_samples, one.total_size) == (4, 2, 6)
    assert one.processed_indices == set()


def test_fewer_samples_than_ranks(world: dict[str, int]) -> None:
    """The original's padding was one slice, so that this failed."""
    dealt = [list(each) for each in samplers(world, 7, 3, shuffle=False)]
    assert dealt == [[0], [1], [2], [0], [1], [2], [0]]
    assert [list(each) for each in samplers(world, 2, 0)] == [[], []]


def test_state_of_other_versions(world: dict[str, int]) -> None:
    one = samplers(world, 2, 10)[0]
    one.load_state_dict({"epoch": 2, "processed_indices": {1, 5, 7, 8}})
    assert (one.epoch, one.processed_num, len(one)) == (2, 4, 3)
    assert one.state_dict() == {"epoch": 2, "processed_num": 4}
    list(one)
    with pytest.deprecated_call():
        batch = one.get_indices(1, 2)
    assert batch == one.indices[one.rank :: 2][2:4]
    with pytest.deprecated_call():
        one.record_indices({1, 2, 3})
    assert one.processed_num == 10


def test_without_a_world_the_last_numbers_stay(
    world: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failed init() a restore must not fail."""
    one = samplers(world, 3, 10)[2]
    saved = one.state_dict()

    def no_world() -> int:
        raise ValueError("Horovod has not been initialized")

    monkeypatch.setattr(module, "size", no_world)
    one.load_state_dict(saved)
    assert (one.num_replicas, one.rank) == (3, 2)


@pytest.mark.parametrize("seed", range(60))
def test_committed_samples_are_the_data_set(seed: int, world: dict[str, int]) -> None:
    """Random sizes, commits, changes and failures: each sample once, and only the padding of the last batches
    of an epoch twice."""
    chance = random.Random(seed)
    length = chance.choice([1, 2, 7, 40, 101, 256])
    batch_size = chance.choice([1, 3, 8])
    saved = {"epoch": 0, "processed_num": 0}
    committed: dict[int, Counter[int]] = {0: Counter()}
    pending: list[int] = []  # samples of batches that are not committed yet
    padding: dict[int, int] = {}
    while saved["epoch"] < 3:
        size = chance.randint(1, 6)
        ranks = samplers(world, size, length, seed=seed)
        for rank, each in enumerate(ranks):
            world.update(rank=rank, size=size)
            each.load_state_dict(saved)  # what sync() does
        pending = []
        loaders = [DataLoader(range(length), batch_size=batch_size, sampler=each) for each in ranks]  # type: ignore[arg-type]
        if ranks[0].remaining_indices:
            padding[saved["epoch"]] = ranks[0].total_size - len(ranks[0].remaining_indices)
        failed = False
        for number, batches in enumerate(zip(*loaders, strict=True)):
            pending += [sample for batch in batches for sample in batch.tolist()]
            for each in ranks:
                each.record_batch(number, batch_size)
            if chance.random() < 0.5:
                committed[saved["epoch"]].update(pending)
                saved, pending = ranks[0].state_dict(), []
            if chance.random() < 0.2:
                failed = True
                break
        if not failed:
            committed[saved["epoch"]].update(pending)
            for rank, each in enumerate(ranks):
                world.update(rank=rank, size=size)
                each.set_epoch(each.epoch + 1)
            saved = ranks[0].state_dict()
            committed[saved["epoch"]] = Counter()
    for epoch in range(3):
        counts = committed[epoch]
        assert set(counts) == set(range(length)), epoch
        twice = sum(counts.values()) - length
        # What the last world of the epoch added so that all ranks have the same number.
        assert 0 <= twice <= padding[epoch], (epoch, twice, padding[epoch])
