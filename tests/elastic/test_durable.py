"""Commits on disk, and a job that goes on from them when nobody is left."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

import pytest
from steps_job import StepsJob

from horovod.common import durable
from horovod.common.durable import CommitError


def test_the_newest_whole_commit_is_found_and_two_are_kept(tmp_path: Path) -> None:
    place = tmp_path / "commits"
    for number in (8, 9, 10):
        durable.write(place, "job", number, b"content %d" % number)
    durable.write(place, "another", 99, b"of another job")
    assert durable.newest(place, "job") == (10, b"content 10")
    assert sorted(path.name for path in place.glob("job-*")) == ["job-10.commit", "job-9.commit"]
    assert (place / "job-10.commit").stat().st_mode & 0o777 == 0o600
    (place / "job-10.commit").write_bytes((place / "job-10.commit").read_bytes()[:-1])
    assert durable.newest(place, "job") == (9, b"content 9")


def test_what_others_could_have_written_is_not_loaded(tmp_path: Path) -> None:
    durable.write(tmp_path, "job", 1, b"content")
    (tmp_path / "job-1.commit").chmod(0o666)
    with pytest.raises(CommitError, match="others could have written it"):
        durable.newest(tmp_path, "job")
    (tmp_path / "job-1.commit").unlink()
    with pytest.raises(CommitError, match="there is none"):
        durable.newest(tmp_path, "job")
    durable.write(tmp_path, "real", 1, b"content")
    (tmp_path / "job-2.commit").symlink_to(tmp_path / "real-1.commit")
    with pytest.raises(CommitError, match="job-2"):
        durable.newest(tmp_path, "job")
    os.mkfifo(tmp_path / "job-3.commit", 0o600)  # of which nothing will ever come
    with pytest.raises(CommitError, match=r"job-3.commit: it is no file"):
        durable.newest(tmp_path, "job")


def test_a_job_that_lost_everybody_goes_on_from_its_last_commit(tmp_path: Path) -> None:
    place = tmp_path / "commits"
    hosts = ["-H", "localhost:1,127.0.0.1:1", "--blacklist-cooldown-range", "1", "2"]
    flags = ["-np", "2", "--min-np", "2", *hosts, "--commit-dir", str(place)]
    with contextlib.closing(StepsJob(tmp_path, *flags)) as job:
        members = job.world(2)
        job.until(lambda: len(list(place.glob("*.commit"))) == 2, "two commits")
        for note in members:
            os.kill(note["pid"], signal.SIGKILL)
        kept = max(int(path.stem.partition("-")[2]) for path in place.glob("*.commit"))
        again = job.world(2, generation=2)
        assert not {note["pid"] for note in again} & {note["pid"] for note in members}
        assert [note["step"] for note in again] == [kept, kept]  # the number of commits is that of steps
        assert again[0]["history"] == [2]
        ends = job.end()
        assert len(ends) == 2 and ends[0]["step"] >= kept


def test_a_job_that_nobody_comes_back_to_ends_after_the_timeout(tmp_path: Path) -> None:
    flags = ["-np", "2", "--min-np", "1", "-H", "localhost:1,127.0.0.1:1", "--elastic-timeout", "2"]
    with contextlib.closing(StepsJob(tmp_path, *flags, "--commit-dir", str(tmp_path / "commits"))) as job:
        members = job.world(2)
        job.until(lambda: bool(list((tmp_path / "commits").glob("*.commit"))), "a commit")
        at = time.monotonic()
        for note in members:
            os.kill(note["pid"], signal.SIGKILL)
        assert job.process.wait(60) != 0
        assert time.monotonic() - at > 2
        assert "Timed out waiting for minimum number of slots" in job.output


def test_a_torch_state_comes_back_bit_for_bit() -> None:
    torch = pytest.importorskip("torch")
    import horovod.torch as hvd

    def made(seed: int) -> hvd.elastic.TorchState:
        torch.manual_seed(seed)
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1 * seed)
        for _ in range(seed):
            optimizer.zero_grad()
            model(torch.randn(5, 3)).sum().backward()
            optimizer.step()
        sampler = hvd.elastic.ElasticSampler(range(20))
        sampler.record_batch(0, seed)
        return hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=seed)

    hvd.init()
    try:
        old, new = made(3), made(1)
        new._load_durable(old._durable())
        assert new.epoch == 3 and new.sampler.processed_num == old.sampler.processed_num
        assert new.optimizer.param_groups[0]["lr"] == old.optimizer.param_groups[0]["lr"]
        for name, value in old.model.state_dict().items():
            assert torch.equal(value, new.model.state_dict()[name]), name
        states = [each.optimizer.state_dict()["state"] for each in (old, new)]
        for number, values in states[0].items():
            assert all(torch.equal(values[key], states[1][number][key]) for key in values)
    finally:
        hvd.shutdown()


def test_keras_variables_come_back() -> None:
    keras = pytest.importorskip("keras")
    import horovod.tensorflow as hvd

    def made(value: float) -> hvd.elastic.TensorFlowKerasState:
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3, kernel_initializer="ones")])
        model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse")
        model.layers[0].kernel.assign(value * model.layers[0].kernel)
        return hvd.elastic.TensorFlowKerasState(model, epoch=int(value))

    hvd.init()
    try:
        old, new = made(3.0), made(1.0)
        new._load_durable(old._durable())
        assert new.epoch == 3 and float(new.model.layers[0].kernel[0, 0]) == 3.0
        bigger = keras.Sequential([keras.Input((2,)), keras.layers.Dense(4)])
        bigger.compile("sgd", "mse")
        other = hvd.elastic.TensorFlowKerasState(bigger, epoch=0)
        with pytest.raises(ValueError, match="not those of the commit on disk"):
            other._load_durable(old._durable())
    finally:
        hvd.shutdown()


def test_a_state_of_the_users_own_is_not_kept_in_part() -> None:
    from horovod.common.elastic import ObjectState

    class Mine(ObjectState):
        def save(self) -> None:
            super().save()

    with pytest.raises(NotImplementedError, match="leave out --commit-dir"):
        Mine(lambda value: value, lambda: 0, epoch=1)._durable()
    plain = ObjectState(lambda value: value, lambda: 0, epoch=1)
    plain._load_durable(ObjectState(lambda value: value, lambda: 0, epoch=5)._durable())
    assert plain.epoch == 5
