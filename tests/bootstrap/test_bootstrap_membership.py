"""The server's decisions, with the time as an argument."""

from __future__ import annotations

from typing import Any

from horovod._bootstrap.rendezvous.membership import Membership, Outgoing
from horovod._bootstrap.rendezvous.protocol import MEET, READY
from horovod._bootstrap.rendezvous.roster import unpack, unpack_hosts


def join(client: int, rank: int, size: int = 2, scope: str = "s", **agree: str) -> dict[str, Any]:
    return {
        "type": "join",
        "scope": scope,
        "rank": rank,
        "size": size,
        "timeout": 10.0,
        "remaining": 10.0,
        "peer_timeout": 3.0,
        "host": f"h{rank}",
        "pid": 100 + client,
        "agree": agree,
    }


def texts(out: list[Outgoing]) -> dict[int, str]:
    return {each.client: each.message["text"] for each in out if each.message["type"] == "error"}


def pair(membership: Membership) -> list[Outgoing]:
    assert membership.join(1, join(1, 0), 0.0) == []
    return membership.join(2, join(2, 1), 0.0)


def test_a_world_from_join_to_go() -> None:
    membership = Membership()
    out = pair(membership)
    assert [each.client for each in out] == [1, 2]
    assert unpack_hosts(out[0].message["hosts"], 2) == [0, 1]
    assert membership.share(2, {"stage": MEET, "value": "b", "of": [[0, 2]]}, 1.0) == []
    out = membership.share(1, {"stage": MEET, "value": "a", "of": [[0, 2]]}, 1.0)
    assert all(unpack(each.message["values"]) == ["a", "b"] and not each.last for each in out)
    membership.share(1, {"stage": READY}, 1.0)
    out = membership.share(2, {"stage": READY}, 1.0)
    assert [(each.client, each.last) for each in out] == [(1, True), (2, True)]
    assert membership.idle
    assert membership.leave(1, "ended", 2.0) == []


def test_every_world_has_its_own_token() -> None:
    tokens = {pair(Membership())[0].message["token"] for _ in range(10)}
    assert len(tokens) == 10


def test_silence_is_noticed_after_the_peer_timeout_only() -> None:
    membership = Membership()
    pair(membership)
    pinged = [out.client for out in membership.tick(0.6)]
    assert pinged == [1, 2]
    membership.heard(1, 2.9)
    assert not texts(membership.tick(3.0))
    failed = texts(membership.tick(3.1))
    assert failed.keys() == {1, 2}
    assert failed[1].startswith("rank 1 (host h1, pid 102) has not answered for 3 s")


def test_a_server_that_was_stopped_itself_blames_nobody() -> None:
    membership = Membership()
    pair(membership)
    membership.postpone(60.0)
    assert not texts(membership.tick(62.9))


def test_the_deadline_names_the_missing() -> None:
    membership = Membership()
    membership.join(1, join(1, 1, size=40), 0.0)
    for now in range(10):
        membership.heard(1, float(now))
        assert not texts(membership.tick(now + 0.9))
    membership.heard(1, 10.0)
    text = texts(membership.tick(10.0))[1]
    assert "missing: rank 0, rank 2," in text and "and 23 more" in text


def test_a_late_stage_names_who_is_behind() -> None:
    membership = Membership()
    pair(membership)
    membership.share(1, {"stage": READY}, 1.0)
    for client in (1, 2):
        membership.heard(client, 11.0)
    assert not texts(membership.tick(10.9))
    assert texts(membership.tick(11.0))[1] == "not connected within 10 s: rank 1 (host h1, pid 102)"


def test_a_failed_scope_is_remembered_until_nobody_can_come() -> None:
    membership = Membership()
    membership.join(1, join(1, 0), 0.0)
    membership.leave(1, "ended", 1.0)
    assert texts(membership.join(2, join(2, 1), 2.0)) == {2: "rank 0 (host h0, pid 101) ended"}
    assert not membership.idle
    membership.tick(10.1)
    assert membership.idle
    assert membership.join(3, join(3, 1), 10.2) == []


def test_rank_failed_reaches_every_open_scope_it_belongs_to() -> None:
    membership = Membership()
    membership.join(1, join(1, 0, size=2, scope="a"), 0.0)
    membership.join(2, join(2, 1, size=3, scope="b"), 0.0)
    failed = texts(membership.rank_failed(2, "killed by signal 9", 1.0))
    assert failed == {2: "rank 2 failed: killed by signal 9"}
    failed = texts(membership.rank_failed(0, "killed by signal 9", 1.0))
    assert failed == {1: "rank 0 (host h0, pid 101) failed: killed by signal 9"}


def test_ranks_of_a_smaller_world_are_counted_as_launched() -> None:
    membership = Membership()
    membership.join(1, join(1, 0, size=2, scope="3-1:2.0"), 0.0)  # the launched rank 3
    assert membership.rank_failed(0, "ended", 1.0) == []
    assert texts(membership.rank_failed(1, "ended", 1.0)) == {1: "rank 1 failed: ended"}
    membership.join(2, join(2, 0, size=2, scope="0-2:2.0"), 0.0)
    assert texts(membership.join(3, join(3, 0, size=2, scope="2-1:2.0"), 2.0)) == {3: "rank 1 failed: ended"}


def test_digits_that_are_no_numbers() -> None:
    """isdigit() is true of them, int() takes them not or as something else."""
    membership = Membership()
    for client, scope in enumerate(("²-1:2.0", "१-0:2.0", "-:2.0", "1-²:")):
        assert membership.join(client, join(client, 0, scope=scope), 0.0) == []
    assert membership.rank_failed(1, "died", 1.0)


def test_a_version_mismatch_names_both() -> None:
    membership = Membership()
    membership.join(1, join(1, 0, version="1"), 0.0)
    failed = texts(membership.join(2, join(2, 1, version="2"), 0.0))
    assert failed[1] == failed[2]
    assert "rank 0 (host h0, pid 101) has 1, rank 1 (host h1, pid 102) has 2" in failed[1]


def test_nonsense_is_answered_and_forgotten() -> None:
    membership = Membership()
    for message in (
        {},
        join(1, 5),
        {**join(1, 0), "pid": [3]},
        {**join(1, 0), "timeout": "soon"},
        {**join(1, 0), "remaining": "nan"},  # neither before nor after any time
        {**join(1, 0), "peer_timeout": 1e400},
        {**join(1, 0), "agree": 1},
    ):
        assert texts(membership.join(1, message, 0.0)).keys() == {1}
    assert membership.idle
    assert membership.share(1, {"stage": READY}, 0.0) == []
    membership.join(1, join(1, 0), 0.0)
    assert "broke the rendezvous protocol" in texts(membership.share(1, {"stage": READY}, 0.0))[1]


def test_a_scope_that_is_over_names_those_at_fault() -> None:
    def joined() -> Membership:
        membership = Membership()
        for rank in range(3):
            membership.join(10 + rank, join(10 + rank, rank, 3), 0.0)
        return membership

    membership = joined()
    membership.leave(11, "ended", 1.0)
    assert [(each.name, each.at_fault) for each in membership.take_ended()] == [("s", (11,))]
    assert membership.take_ended() == []
    membership = joined()
    membership.give_up(12, "gave up", 0, 1.0)  # it has not reached rank 0: one of the two
    ended = membership.take_ended()[0]
    assert (ended.at_fault, ended.pair) == ((), (12, 10))
    membership = joined()
    membership.give_up(12, "gave up", None, 1.0)
    ended = membership.take_ended()[0]
    assert (ended.at_fault, ended.pair) == ((), ())
