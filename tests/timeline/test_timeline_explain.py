"""The breakdown of steps, who is late, and what is advised: planted cases are named first."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from synthetic import MS, US, Host, Job

from horovod.timeline import records as r
from horovod.timeline.advice import advise
from horovod.timeline.breakdown import PARTS, Result, analyse
from horovod.timeline.clocks import align
from horovod.timeline.records import Part
from horovod.timeline.text import as_json, comparison, ms, sentences, table
from horovod.timeline.trace import build

ONE = [Host("a")] * 4
TWO = [Host("a"), Host("a"), Host("b", 3_000 * MS, 50e-6), Host("b", 3_000 * MS, 50e-6)]


def explained(job: Job) -> Result:
    return analysed(job.parts())


def analysed(parts: list[Part]) -> Result:
    traces = {part.rank: build(part) for part in parts}
    return analyse(traces, align(traces, {}), parts[0].header["transport"])


def first_cause(result: Result) -> str:
    advice = advise(result)
    return advice[0].cause if advice else ""


@pytest.mark.parametrize("marks", [True, False])
@pytest.mark.parametrize("hosts", [ONE, TWO])
def test_the_parts_add_up_to_the_step_on_every_rank(marks: bool, hosts: list[Host]) -> None:
    random.seed(1)
    lengths = [random.randint(20, 60) * MS for _ in range(1000)]
    job = Job(hosts, marks=marks, compute=lambda rank, step: lengths[(7 * step + rank) % 1000])
    job.heartbeat = lambda number: 50 * US
    result = explained(job)
    assert result.count == 49
    for each in result.ranks:
        assert sum(each.parts.values()) == pytest.approx(result.step, rel=0.01)
        assert all(value >= 0 for value in each.parts.values())
    assert sum(result.parts.values()) == pytest.approx(result.step)
    # One operation of 5 ms in each step, and 50 µs before it.
    assert result.parts["transfer"] == pytest.approx(5 * MS, rel=0.05)
    assert result.parts["control"] < 0.3 * MS


def test_exposed_and_hidden_communication() -> None:
    result = explained(Job(ONE, compute=lambda rank, step: 40 * MS))
    assert result.step == pytest.approx(45.1 * MS, rel=0.01)
    assert result.parts["compute"] == pytest.approx(40 * MS, rel=0.01)
    assert result.parts["late"] < 0.1 * MS
    assert result.hidden < 0.1 * MS


def test_a_rank_that_sleeps_is_named() -> None:
    """Rank 1 needs 20 ms more in every step, in which its processor has nothing to do."""
    job = Job(TWO, compute=lambda rank, step: 60 * MS if rank == 1 else 40 * MS)
    job.busy = lambda rank, step: 0.3 if rank == 1 else 1.0
    job.heartbeat = lambda number: 50 * US
    result = explained(job)
    assert first_cause(result) == "slow rank"
    assert result.last == {1: 49}
    assert result.charged[1] == pytest.approx(20 * MS, rel=0.05)
    words = "\n".join(sentences(result))
    assert "Rank 1 (a) was last in 49 of 49 steps; the others waited 20 ms" in words
    assert "only 30 % of its own time" in words


@pytest.mark.parametrize("lost", range(4))
@pytest.mark.parametrize("hosts", [ONE, TWO])
def test_a_rank_whose_records_are_lost(lost: int, hosts: list[Host]) -> None:
    """Its host was. The others' tell that it was late; rank 0's alone tell who was."""
    job = Job(hosts, compute=lambda rank, step: 60 * MS if rank == max(1, lost) else 40 * MS)
    job.heartbeat = lambda number: 50 * US
    result = analysed([part for part in job.parts() if part.header["rank"] != lost])
    assert len(result.ranks) == 3 and result.step == pytest.approx(65.1 * MS, rel=0.01)
    assert table(result) and as_json(result)
    if lost > 0:
        assert first_cause(result) == "slow rank"
        assert f"Rank {lost} (without records) was last in 49 of 49 steps" in "\n".join(sentences(result))


def test_a_rank_that_waits_for_its_data_is_named() -> None:
    job = Job(ONE, compute=lambda rank, step: 60 * MS if rank == 2 else 40 * MS)
    job.data = lambda rank, step: 22 * MS if rank == 2 else 2 * MS
    result = explained(job)
    assert first_cause(result) == "slow rank"
    assert "it waits 22 ms a step for its data" in advise(result)[0].sentence


def test_ranks_that_are_late_in_turn() -> None:
    job = Job(ONE, compute=lambda rank, step: 60 * MS if step % 4 == rank else 40 * MS)
    result = explained(job)
    assert first_cause(result) == "imbalance"
    assert all(count < 20 for count in result.last.values())


def test_two_ranks_that_are_late_by_chance() -> None:
    """One of the two is last more often, and somewhat longer: that says nothing about it."""
    late = [1, 0, 1, 1, 0, 1, 0, 1, 1, 0]
    more = [20 * MS, 25 * MS]
    job = Job([Host("a")] * 2, compute=lambda rank, step: 40 * MS + (late[step % 10] == rank) * more[rank])
    result = explained(job)
    assert result.charged[1] > 0.62 * sum(result.charged.values())
    assert first_cause(result) == "imbalance"
    assert "holds the others up" not in "\n".join(sentences(result))


def test_a_rank_that_is_late_in_few_steps() -> None:
    """As one that writes checkpoints."""
    job = Job(ONE, compute=lambda rank, step: 240 * MS if rank == 0 and step % 10 == 9 else 40 * MS)
    result = explained(job)
    assert first_cause(result) == "slow rank"
    assert "Rank 0 (a) was late in few steps, but then much" in advise(result)[0].sentence


@pytest.mark.parametrize(
    ("ns", "text"),
    [(12_345_678, "12"), (1_234_567, "1.2"), (123_456, "0.12"), (12_345, "0.01"), (1234, "0.001"), (9, "0")],
)
def test_times_that_are_short_are_not_none(ns: int, text: str) -> None:
    assert ms(ns) == text


def test_a_loader_that_sleeps() -> None:
    job = Job(ONE, data=lambda rank, step: 30 * MS)
    result = explained(job)
    assert first_cause(result) == "input" and "30 ms a step for data" in advise(result)[0].sentence


def test_ranks_with_too_many_threads() -> None:
    """Four ranks with two threads each on six processors, or what a container leaves of them."""
    job = Job(ONE, threads=2, busy=lambda rank, step: 0.8, processors="0-3,8,10")
    job.waited = lambda rank, step: 9 * MS
    (advice,) = advise(explained(job))[:1]
    assert advice.cause == "processors" and advice.cost == pytest.approx(9 * MS)
    assert "The ranks of a keep its 6 processors busy and wait 9 ms a step for one" in advice.sentence
    assert "OMP_NUM_THREADS=1" in advice.sentence
    job.quota = 3
    assert "3 processors" in advise(explained(job))[0].sentence
    assert "start fewer ranks" in advise(explained(job))[0].sentence
    # Other programs use half of them: that the ranks can't change.
    job.quota, job.processors = 0, "0-15"
    assert "processors" not in [advice.cause for advice in advise(explained(job))]
    # They are all busy, and nobody has to wait.
    job.processors, job.waited = "0-5", lambda rank, step: 0
    assert "processors" not in [advice.cause for advice in advise(explained(job))]


def test_a_loader_that_nobody_has_marked() -> None:
    result = explained(Job(ONE, busy=lambda rank, step: 0.2))
    assert first_cause(result) == "idle" and "perhaps" in advise(result)[0].sentence


def test_other_programs_on_the_processors() -> None:
    """What looks like waiting for data is a wait for a processor, and the kernel knows."""
    job = Job(ONE, busy=lambda rank, step: 0.3, processors="0-3")
    job.waited = lambda rank, step: 26 * MS
    advice = advise(explained(job))[0]
    assert advice.cause == "other programs" and "26 ms a step for a processor" in advice.sentence
    assert "data" not in advice.sentence


def test_a_thousand_tiny_tensors() -> None:
    job = Job(ONE, steps=15, tensors=1000, fused=1, bytes=64, transfer=30 * US, control=10 * US)
    result = explained(job)
    assert first_cause(result) == "small operations"
    assert result.operations == pytest.approx(1000) and "1000 operations a step" in advise(result)[0].sentence


def test_fusion_is_advised_with_what_it_saves() -> None:
    """1,000 operations of 40 µs, of which two would be enough."""
    job = Job(ONE, steps=15, tensors=1000, fused=1, bytes=64, transfer=30 * US, control=10 * US)
    assert "about 40 ms less a step" in advise(explained(job))[0].sentence


def test_a_slow_network() -> None:
    """4 MB over 10 Mbit/s."""
    job = Job(TWO, steps=15, transfer=4_800 * MS, transport="hierarchical")
    job.heartbeat = lambda number: 50 * US
    result = explained(job)
    assert first_cause(result) == "network" and "compress" in advise(result)[0].sentence


def test_large_tensors_on_one_host() -> None:
    result = explained(Job(ONE, steps=15, transfer=80 * MS))
    assert first_cause(result) == "memory" and "MB a step" in advise(result)[0].sentence
    assert not any("Nothing stands out" in line for line in sentences(result))


def test_speed_against_memory() -> None:
    """4 MiB in 5 ms on four ranks, of which each moves 1.5 times the bytes."""
    result = explained(Job(ONE, steps=15, speeds={"copy_speed": 12_000_000_000, "link_speed": 10**9}))
    assert result.bus == pytest.approx(1.5 * (4 << 20) / 5e-3, rel=0.01)
    assert "moved 1.26 GB/s on each rank, which copies memory at 12 GB/s." in " ".join(sentences(result))
    assert as_json(result)["speed"]["copy"] == 12e9
    # Something else ran while it was measured.
    result = explained(Job(ONE, steps=15, speeds={"copy_speed": 160_000_000, "link_speed": 10**9}))
    (line,) = [line for line in sentences(result) if "Large operations" in line]
    assert "GB/s on each rank." in line and "copies" not in line
    unknown = explained(Job(ONE, steps=15))
    assert not any("copies memory" in line for line in sentences(unknown))


def test_speed_against_the_network() -> None:
    """4 MiB on the network in a third of 60 ms, sent by both ranks of each host at the same time."""
    job = Job(TWO, steps=15, transfer=60 * MS, transport="hierarchical", speeds={"link_speed": 10**9})
    job.heartbeat = lambda number: 50 * US
    job.speeds = {"link_speed": 4 * 10**9}
    result = explained(job)
    assert result.network == pytest.approx(2 * (4 << 20) / 20e-3, rel=0.01)
    limit = "Between hosts 0.419 GB/s of 0.5 (4 Gbit/s): the network is at its limit during 20 % of a step."
    assert limit in sentences(result)
    assert "link" not in [advice.cause for advice in advise(result)]
    job.speeds = {"link_speed": 10**10}
    slow = explained(job)
    assert "Between hosts 0.419 GB/s of 1.25 (10 Gbit/s)." in sentences(slow)
    (advice,) = (advice for advice in advise(slow) if advice.cause == "link")
    assert "only 34 % of the 1.25 GB/s" in advice.sentence and "--doctor" in advice.sentence
    job.speeds = {}
    assert "Between hosts 0.419 GB/s." in sentences(explained(job))


def test_names_that_never_recur() -> None:
    job = Job(ONE, control=20 * MS, names=lambda step, tensor: f"noname.{4 * step + tensor}")
    result = explained(job)
    assert "new names" in [advice.cause for advice in advise(result)]


def test_without_marks_and_without_names_there_are_no_steps() -> None:
    job = Job(ONE, marks=False, names=lambda step, tensor: f"noname.{4 * step + tensor}")
    with pytest.raises(ValueError, match="no name recurs"):
        explained(job)


@pytest.mark.parametrize("cut", [1, 20, 60])
def test_steps_without_marks_of_a_job_whose_rank_was_killed(cut: int) -> None:
    """Its last records are missing, in the middle of a step."""
    parts = Job([Host("a")] * 2, marks=False).parts()
    whole = analysed(parts)
    parts[1] = replace(parts[1], records=parts[1].records[:-cut], torn=True)
    result = analysed(parts)
    assert result.found_by.startswith("recurrences of grad.") and result.lost == [1]
    assert 0 <= whole.count - result.count <= 6 and result.step == pytest.approx(whole.step, rel=0.01)


def test_a_good_job_gets_no_advice() -> None:
    result = explained(Job(ONE, transfer=500 * US))
    assert advise(result) == [] and "Nothing stands out" in sentences(result)[-1]


@pytest.mark.parametrize("others", [False, True])
def test_callbacks_have_no_waits(others: bool) -> None:
    """TensorFlow is never blocked: exposed is from the last submit to the last end, also if
    something else is waited for now and then."""
    job = Job(ONE, steps=30, compute=lambda rank, step: 60 * MS if rank == 1 else 40 * MS)
    parts = job.parts()
    for part in parts:
        waits = [record for record in part.records if record.kind in (r.WAIT_BEGIN, r.WAIT_END)]
        kept = waits[-2:] if others else []
        part.records = [
            record._replace(operation=1) if record.kind == r.SUBMIT else record
            for record in part.records
            if record not in waits or record in kept
        ]
    result = analysed(parts)
    assert result.parts["transfer"] == pytest.approx(5 * MS, rel=0.05)
    assert result.parts["late"] == pytest.approx(0.75 * 20 * MS, rel=0.05)
    assert first_cause(result) == "slow rank" and result.last == {1: result.count}


def test_the_text_the_table_and_the_json_agree() -> None:
    result = explained(Job(ONE))
    assert "49 steps of 45 ms on 4 ranks. Compute 40 ms, exposed communication 5.1 ms" in sentences(result)[0]
    lines = table(result)
    assert sum(line.startswith(("0 ", "1 ", "2 ", "3 ")) for line in lines) == 4
    assert any("≤ 16 MiB" in line for line in lines)
    data = as_json(result)
    assert data["steps"] == 49 and data["size"] == 4
    assert sum(data["parts"].values()) == pytest.approx(data["step"])
    assert set(data["parts"]) == set(PARTS)


def test_names_of_tensors_do_not_break_the_table() -> None:
    job = Job(ONE, names=lambda step, tensor: f"new\nline \x1b[2J {tensor} " + 3000 * "x")
    lines = [line for line in table(explained(job)) if "new" in line]
    assert lines and all(line.isprintable() and len(line) < 120 for line in lines)


def test_against_another_timeline() -> None:
    before, now = explained(Job(ONE)), explained(Job(ONE, transfer=15 * MS))
    lines = comparison(now, before)
    assert lines[0] == "A step takes 55 ms instead of 45: 22 % slower."
    assert lines[1] == "transfer: 5.0 → 15 ms" and len(lines) == 2
    assert comparison(now, now)[0].endswith("as before.")
