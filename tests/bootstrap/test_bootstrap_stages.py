"""Stages of the rendezvous: who gets whose values, how much is sent in all, and what nonsense does."""

from __future__ import annotations

import base64
import json
import random
import sys
import zlib
from typing import Any

import pytest
from util_paths import ROOT

from horovod._bootstrap.rendezvous.membership import Membership, Outgoing
from horovod._bootstrap.rendezvous.protocol import HOST, MEET, READY, STAGES
from horovod._bootstrap.rendezvous.roster import (
    checked,
    pack,
    pack_hosts,
    ranges_of,
    ranks_of,
    unpack,
    unpack_hosts,
)
from horovod._net.frames import MAX_FRAME_BYTES, FrameError, encode

sys.path.insert(0, str(ROOT / "scripts"))

import scaling_start


def joined(size: int) -> Membership:
    """Clients have the numbers of their ranks."""
    membership = Membership()
    times = {"timeout": 10.0, "remaining": 10.0, "peer_timeout": 3.0}
    for rank in range(size):
        place = {"rank": rank, "size": size, "host": f"h{rank // 2}", "pid": 100 + rank}
        membership.join(rank, {"scope": "s", "agree": {}, **place, **times}, 0.0)
    return membership


def share(stage: Any, **more: Any) -> dict[str, Any]:
    return {"type": "share", "stage": stage, **more}


def texts(out: list[Outgoing]) -> dict[int, str]:
    return {each.client: each.message["text"] for each in out if each.message["type"] == "error"}


def test_each_gets_what_it_asks_for() -> None:
    membership = joined(5)
    asked = [[[0, 5]], [[0, 1], [3, 2]], [], [[4, 1]], [[4, 1]]]
    out: list[Outgoing] = []
    for rank in (3, 1, 4, 0, 2):
        assert out == []
        out = membership.share(rank, share(MEET, value=f"v{rank}", of=asked[rank]), 1.0)
    answers = {each.client: each.message for each in out}
    got = [unpack(answers[rank]["values"]) if "values" in answers[rank] else None for rank in range(5)]
    assert got == [["v0", "v1", "v2", "v3", "v4"], ["v0", "v3", "v4"], None, ["v4"], ["v4"]]
    assert answers[3] is answers[4]  # to be encoded once
    assert not any(each.last for each in out)


def test_the_problem_of_the_lowest_rank_is_told() -> None:
    membership = joined(3)
    problems = ["", "x" * 5000, "other"]
    out = [
        each
        for rank in (2, 0, 1)
        for each in membership.share(rank, share(HOST, problem=problems[rank]), 1.0)
    ]
    assert [each.message["problem"] for each in out] == ["x" * 2000] * 3


@pytest.mark.parametrize(
    "wrong",
    [
        share("offer"),
        share({"a": 1}),
        share(["meet"]),
        {"type": "share"},
        share(MEET, of=3),
        share(MEET, of="0-2"),
        share(MEET, of={"0": 1}),
        share(MEET, of=[0]),
        share(MEET, of=[[0]]),
        share(MEET, of=[[0, True]]),
        share(MEET, of=[[0.0, 1]]),
        share(MEET, of=[[0, 0]]),
        share(MEET, of=[[-1, 2]]),
        share(MEET, of=[[0, 4]]),
        share(MEET, of=[[2, 1 << 80]]),
        share(MEET, of=[[0, 2], [1, 2]]),
        share(MEET, of=[[0, 1], [0, 1]]),  # would be sent twice
        share(MEET, of=[[1, 1], [0, 1]]),
        share(MEET, of=[[0, 1]] * 1000),
    ],
)
def test_nonsense_fails_the_scope(wrong: dict[str, Any]) -> None:
    membership = joined(3)
    membership.share(0, share(MEET, value=1, of=[[0, 3]]), 1.0)
    failed = texts(membership.share(1, wrong, 1.0))
    assert failed.keys() == {0, 1, 2}
    assert failed[0].startswith("rank 1 (host h0, pid 101) broke the rendezvous protocol: "), failed
    assert len(failed[0]) < 200
    membership.tick(100.0)
    assert membership.idle


@pytest.mark.parametrize("again", STAGES)
def test_nobody_is_answered_twice(again: str) -> None:
    """Before a stage is over, or after it, or by going on alone."""
    membership = joined(2)
    membership.share(0, share(HOST, of=[[0, 2]]), 1.0)
    assert "can't be at the stage" in texts(membership.share(0, share(again), 1.0))[1]
    membership = joined(2)
    for rank in range(2):
        membership.share(rank, share(HOST, value=1, of=[[0, 2]]), 1.0)
    failed = texts(membership.share(0, share(again), 1.0))
    assert bool(failed) == (again != READY)


def test_values_that_are_too_large_together_fail_the_scope() -> None:
    membership = joined(3)
    # No frame to the server brings so much; but all together may.
    values = ["x" * (MAX_FRAME_BYTES // 2)] * 3
    for rank in range(3):
        out = membership.share(rank, share(MEET, value=values[rank], of=[[0, 3]]), 1.0)
    assert texts(out).keys() == {0, 1, 2} and "over the limit" in texts(out)[0]


def test_values_too_deep_to_be_sent_again_fail_the_scope() -> None:
    deep: Any = 0
    for _ in range(100_000):
        deep = [deep]
    membership = joined(2)
    membership.share(0, share(MEET, value=deep, of=[[0, 2]]), 1.0)
    assert texts(membership.share(1, share(MEET, value=1), 1.0)).keys() == {0, 1}


def nonsense(dice: random.Random, size: int) -> Any:
    """Something where ranges should be, often nearly right."""
    number = dice.choice([0, 1, size - 1, size, -1, 1 << 40, True, 0.5, None, "1", [], {}])
    return dice.choice(
        [
            number,
            [number],
            [[number, dice.choice([1, number])]],
            [[0, 1], [number, 1]],
            [[dice.randrange(size), dice.randrange(size)] for _ in range(dice.randrange(4))],
        ]
    )


@pytest.mark.parametrize("rounds", [2000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_random_requests(rounds: int) -> None:
    """Whatever some ranks say, nothing is raised; each gets one answer to a share, or the scope fails for
    all.
    """
    dice = random.Random(rounds)
    ends = {"ready": 0, "failed": 0}
    for _ in range(rounds):
        size = dice.randrange(1, 6)
        membership = joined(size)
        shares, answers = [0] * size, [0] * size
        mischief = dice.choice([0.0, 0.02, 0.3])
        waiting = {rank: 0 for rank in range(size)}  # the next stage of those that have an answer
        while not membership.take_ended():
            rank = dice.choice([*waiting] or [0])
            stage: Any = STAGES[waiting.pop(rank, 0)]
            message = share(
                stage, value=rank, of=[[first, 1] for first in range(size) if dice.random() < 0.5]
            )
            if dice.random() < mischief:
                rank, key = dice.randrange(size + 1), dice.choice(["of", "stage", "value", "problem"])
                message[key] = nonsense(dice, size) if dice.random() < 0.7 else dice.choice(STAGES)
            out = membership.share(rank, json.loads(json.dumps(message)), 1.0)
            if rank < size:
                shares[rank] += 1
            assert len({each.client for each in out}) == len(out) in (0, size)
            for each in out:
                encode(each.message)
                answers[each.client] += 1
                if each.message["type"] == "error":
                    continue
                assert answers[each.client] <= shares[each.client]
                waiting[each.client] = STAGES.index(each.message["stage"]) + 1
            if out and out[0].last:
                ends["failed" if texts(out) else "ready"] += 1
            if not waiting and not out and membership._clients and mischief:
                membership.leave(next(iter(membership._clients)), "ended", 1.0)  # someone is out of step
        assert not membership._clients
    assert min(ends.values()) > rounds / 10, ends


def test_the_list_of_the_ranks_is_short() -> None:
    infos = [
        {
            "host": f"node{rank // 8}.cluster.example",
            "pid": 20000 + 3 * rank,
            "pid_namespace": f"4026531836-{rank // 8}",
            "tcp": [[f"10.1.{rank // 2048}.{rank // 8 % 256}", 30000 + 7 * rank % 20000]],
        }
        for rank in range(1024)
    ]
    packed = pack(infos)
    assert unpack(packed) == infos
    assert len(packed) < 30 * len(infos)
    large = base64.b64encode(zlib.compress(b"[" + b" " * MAX_FRAME_BYTES + b"]")).decode()
    for bad in ("", "x", "=" * 8, packed[:-8], pack({}), packed.replace(packed[50], "!"), large):  # type: ignore[arg-type]
        with pytest.raises(FrameError):
            unpack(bad)


@pytest.mark.parametrize(
    "place",
    [
        lambda rank: f"node{rank // 8}",  # one host after the other
        lambda rank: f"node{rank % 4096}",  # in turn
        lambda rank: f"node{rank // 8 % 4096 ^ 1}",
    ],
)
def test_who_shares_a_host_is_a_line(place: Any) -> None:
    names = [place(rank) for rank in range(32_768)]
    packed = pack_hosts(names)
    hosts = unpack_hosts(packed, len(names))
    order = list(dict.fromkeys(names))
    assert [order[host] for host in hosts] == names
    assert len(packed) < 400
    for bad in (pack([0]), pack(["a"] * len(names)), "x"):
        with pytest.raises(FrameError):
            unpack_hosts(bad, len(names))


def test_ranges() -> None:
    dice = random.Random(1)
    for _ in range(500):
        ranks = {dice.randrange(40) for _ in range(dice.randrange(40))}
        ranges = ranges_of(ranks)
        assert list(ranks_of(ranges)) == sorted(ranks)
        assert checked([list(each) for each in ranges], 40) == ranges
    assert ranges_of(range(1000)) == ((0, 1000),)


def places(hosts: int) -> list[int]:
    return [host for host in range(hosts) for _ in range(8)]


def test_what_is_sent_grows_with_the_ranks() -> None:
    """And not with their square: eight times the ranks get eight times as much, and a bit."""
    few, many = (scaling_start.start(places(hosts)) for hosts in (64, 512))
    assert many.to_all < 10 * few.to_all
    assert many.to_first < 10 * few.to_first
    assert many.to_other < 1.2 * few.to_other < 1000
    assert many.passed_on < 10 * few.passed_on
    # As if each rank asked for all others.
    square = scaling_start.start(places(64), lambda rank, size, *_: range(size))
    assert square.to_all > 15 * few.to_all
