"""Who is in the next world and why: the decisions of an elastic launcher, without processes."""

from __future__ import annotations

import math

import pytest
from elastic_model import Model

from horovod.runner.elastic import changes
from horovod.runner.elastic.generation import waiting
from horovod.runner.elastic.state import LIVING, Agent, Phase
from horovod.runner.elastic.worker import HostUpdateResult

AB = ["a[0]", "a[1]", "b[0]", "b[1]"]


def test_first_world() -> None:
    """All slots up to the maximum, in the order of the list; no state is asked for."""
    model = Model(start=2, least=2, most=3).discover(b=2, a=2)
    assert not model.state.members
    model.enlist(["b[0]", "b[1]"])
    assert not model.state.members, "a[0] is on its way"
    model.enlist(["a[0]"])
    assert model.world == ["b[0]", "b[1]", "a[0]"]
    (formed,) = [each for each in model.decisions if each.world is not None]
    assert formed.sync and formed.source == 0 and formed.reason == "the start of the job"


def test_too_few_slots_at_the_start() -> None:
    model = Model(start=4, least=2, elastic_timeout=10).discover(a=2)
    assert not model.state.workers, "nothing is started before there are enough slots"
    model.step(9.9)
    assert model.decision.stop is None and model.decision.look_again == pytest.approx(110)
    model.step(0.2)
    assert model.decision.stop is not None and model.decision.stop.code == 1
    assert "Timed out waiting for minimum number of slots" in model.decision.stop.text


def test_too_few_slots_are_left_when_one_has_finished() -> None:
    """A command that needs no world, on hosts that change before all have been started."""
    model = Model(start=2, least=1, elastic_timeout=10).discover(a=1, b=1)
    model.exit("a[0]", 0).discover(c=1).finish_leaving()
    assert model.decision.stop is None and model.decision.look_again == pytest.approx(110)
    model.step(10.5)
    stop = model.decision.stop
    assert stop is not None and stop.code == 1 and "Timed out waiting for minimum" in stop.text


def test_what_is_waited_for_is_said() -> None:
    """At the start, too, where nothing limits the time that a program takes until it calls init()."""
    model = Model(start=4, least=2).discover(a=2)
    assert waiting(model.state, model.decision) == (130, "the job waits for 4 slots, of which 2 are there")
    model.discover(a=2, b=2).enlist(["a[0]", "a[1]", "b[0]"])
    assert waiting(model.state, model.decision) == (130, "3 ranks wait for b[1]")
    model.enlist(["b[1]"])
    assert waiting(model.state, model.decision)[0] == math.inf
    model.exit("b[1]", 1)
    text = "another rank has ended; the job waits for rank 0 (a[0]), rank 1 (a[1])"
    assert waiting(model.state, model.decision) == (105, text)
    model.enlist(["a[0]"])
    assert waiting(model.state, model.decision) == (105, "1 rank waits for rank 1 (a[1])")


def test_hopeless_start() -> None:
    """Nobody is waited for who can't come."""
    model = Model(start=2, least=1, fixed=True).discover(a=1, b=1)
    model.exit("a[0]", 7)
    stop = model.decision.stop
    assert stop is not None and stop.code == 7 and "a: a[0] exited with code 7" in stop.text
    model = Model(start=2, least=1, fixed=True, cooldown=(1, 2)).discover(a=1, b=1)
    assert model.exit("a[0]", 7).decision.stop is None, "it comes back in a while"
    model = Model(agents=False, start=2, least=1, fixed=True).discover(a=1, b=1)
    stop = model.apply(changes.agent_lost, "b", "the name is unknown", 0.0).decision.stop
    assert stop is not None and stop.code == 1 and "b: the name is unknown" in stop.text


def test_death_of_a_rank() -> None:
    """Its host is not used any more, the others go on with the next ranks and the newest state."""
    model = Model(start=4, least=2).begin(a=2, b=2)
    model.exit("a[0]", -9)
    assert model.state.workers[2].phase is Phase.CONDEMNED, "rank 1 is ended with its host"
    assert model.state.workers[2].why == "a is blacklisted: a[0] exited with code -9"
    assert model.state.generation == 1
    model.enlist(["b[0]"], commit=7, rolled_back=True, culprit=0)
    assert model.state.generation == 1, "rank 3 has not come back yet"
    model.enlist(["b[1]"], commit=8, rolled_back=True, culprit=0)
    assert model.world == ["b[0]", "b[1]"]
    formed = model.decisions[-1]
    assert (formed.sync, formed.source) == (True, 1)
    assert "a[0]" in formed.reason and "blacklisted" in formed.why["a"]


def test_who_is_ended_is_not_told_something_else() -> None:
    model = Model(start=4, least=2).begin(a=2, b=2)
    model.enlist(AB[:3], commit=1, rolled_back=True, culprit=3, silent=True).step(0.4)
    assert model.world == ["a[0]", "a[1]"]
    assert [each.dismiss for each in model.decisions if each.dismiss] == []


def test_death_is_known_last() -> None:
    """Survivors come back before the launcher hears of the death: the dead is not waited for nor
    included."""
    model = Model(start=2, least=1).begin(a=1, b=1)
    model.enlist(["b[0]"], commit=1, rolled_back=True, culprit=0)
    assert model.state.generation == 1 and model.decision.waiting == "rank 0 (a[0])"
    model.exit("a[0]", 1)
    assert model.world == ["b[0]"]


@pytest.mark.parametrize(("silent", "seconds"), [(True, 0.3), (False, 3.0)])
def test_accused(silent: bool, seconds: float) -> None:
    """Who does not come when others have given it up is ended."""
    model = Model(start=4, least=2).begin(a=2, b=2)
    model.enlist(["a[0]", "a[1]", "b[0]"], commit=1, rolled_back=True, culprit=3, silent=silent, why="silent")
    model.step(seconds - 0.1)
    assert model.state.generation == 1 and model.decision.look_again == pytest.approx(100 + seconds)
    model.step(0.2)
    assert model.world == ["a[0]", "a[1]"], "b[0] is ended with its host"
    assert [each.code for each in model.state.failures] == []
    assert "b[1]: silent" in model.decisions[-1].reason


def test_who_is_left_is_stopped() -> None:
    """Nobody accuses it: the others have ended. One that answers is busy, and may take its time."""
    model = Model(start=2, least=1, elastic_timeout=60).discover(a=1, b=1)
    model.enlist(["a[0]", "b[0]"], why="it has just started")
    model.exit("b[0]", 1)
    assert model.decision.waiting == "rank 0 (a[0])" and model.decision.look_again == model.now + 60
    model.step(50).apply(changes.heard, model.worker("a[0]").id).step(50)
    assert model.worker("a[0]").phase is Phase.ACTIVE
    model.step(11)
    assert dict(model.decisions[-2].condemn) == {1: "did not react"}
    assert model.decision.stop is not None and model.decision.stop.code == 1


def test_who_is_left_when_others_have_finished_may_take_its_time() -> None:
    """Nobody is asked for a new world any more."""
    model = Model(start=3, least=1, elastic_timeout=60).begin(a=1, b=1, c=1)
    model.exit("a[0]", 0).exit("b[0]", 1).step(1000)
    assert model.worker("c[0]").phase is Phase.ACTIVE and not model.decision.waiting
    model.exit("c[0]", 0)
    assert model.decision.stop is not None and model.decision.stop.code == 1


def test_broken_link() -> None:
    """Two live hosts that accuse each other: the younger one goes, and the pair is named."""
    model = Model(start=2, least=1).begin(a=1, b=1)
    model.enlist(["a[0]"], commit=1, culprit=1, silent=True)
    model.enlist(["b[0]"], commit=1, culprit=0, silent=True)
    model.step(0.1)
    assert model.world == ["a[0]"]
    assert "a and b do not reach each other" in model.decisions[-1].why["b"]


def test_growth_is_warm() -> None:
    """Survivors hear of a newcomer when it is ready, once for all that come together."""
    model = Model(start=2, least=2).begin(a=2)
    model.discover(a=2, b=2)
    assert [each for each in model.decisions if each.notify] == []
    model.enlist(["b[0]"])
    assert [each for each in model.decisions if each.notify] == []
    model.step(0.5).enlist(["b[1]"])
    (notice,) = [each for each in model.decisions if each.notify]
    assert notice.notify == HostUpdateResult.added
    assert model.state.generation == 1
    model.enlist(["a[0]", "a[1]"], commit=3)
    assert model.world == AB
    assert model.decisions[-1].sync and model.decisions[-1].source == 0
    assert [each.notify for each in model.decisions if each.notify] == [HostUpdateResult.added]


def test_slow_newcomer_is_not_waited_for() -> None:
    model = Model(start=2, least=2).begin(a=2)
    model.discover(a=2, b=2).enlist(["b[0]"]).step(1.1)
    assert [each.notify for each in model.decisions if each.notify] == [HostUpdateResult.added]
    model.enlist(["a[0]", "a[1]"], commit=3)
    assert model.world == ["a[0]", "a[1]", "b[0]"]
    model.enlist(["b[1]"])
    assert model.decisions[-1].notify == HostUpdateResult.added


def test_newcomers_that_start_slowly_have_more_time() -> None:
    """On a busy machine, or with a large framework, those that started together are further apart."""
    model = Model(start=2, least=2).begin(a=2)
    model.discover(a=2, b=2).step(8).enlist(["b[0]"]).step(3.9)
    assert not [each for each in model.decisions if each.notify]
    model.enlist(["b[1]"])
    assert model.decisions[-1].notify == HostUpdateResult.added
    model.enlist(["a[0]", "a[1]"], commit=3)
    assert model.world == AB


def test_growth_is_cold() -> None:
    """As the original: survivors hear at once, and wait for the newcomers."""
    model = Model(start=2, least=2, warm_join=False).begin(a=2)
    model.discover(a=2, b=1)
    assert [each.notify for each in model.decisions if each.notify] == [HostUpdateResult.added]
    model.enlist(["a[0]", "a[1]"], commit=3)
    assert model.state.generation == 1 and model.decision.waiting == "b[0]"
    model.enlist(["b[0]"])
    assert model.world == ["a[0]", "a[1]", "b[0]"]


def test_orderly_leave() -> None:
    """Nothing is rolled back, nobody new: no sync; those who leave are told, not killed."""
    model = Model(start=4, least=2).begin(a=2, b=2)
    model.discover(a=2)
    assert model.decisions[-1].notify == HostUpdateResult.removed
    assert all(model.worker(name).phase is Phase.ACTIVE for name in AB)
    model.enlist(["b[0]", "a[0]", "a[1]"], commit=5)
    model.enlist(["b[1]"], commit=5)
    assert model.world == ["a[0]", "a[1]"]
    (formed,) = [each for each in model.decisions if each.world and each.sync is False]
    assert "b is gone" in formed.reason
    model.finish_leaving()
    assert model.state.hosts["b"].agent is Agent.NONE and not math.isinf(model.state.hosts["b"].not_before)


def test_who_was_removed_must_end() -> None:
    model = Model(start=2, least=1).begin(a=1, b=1)
    model.discover(a=1).enlist(["a[0]", "b[0]"], commit=1)
    assert model.state.workers[2].phase is Phase.LEAVING and model.decision.look_again == 130
    model.step(30)
    assert model.state.workers[2].phase is Phase.CONDEMNED and model.world == ["a[0]"]
    assert not model.state.failures


def test_who_was_removed_ends_in_peace() -> None:
    """Its last words, a file perhaps, are waited for when all others have finished; not for ever."""
    for exits in (True, False):
        model = Model(start=2, least=1).begin(a=1, b=1)
        model.discover(a=1).enlist(["a[0]", "b[0]"], commit=1)
        model.step(10).exit("a[0]", 0)
        assert model.decision.stop is None and model.decision.look_again == 130
        if exits:
            model.finish_leaving()
        else:
            model.step(20)
        assert model.decision.stop is not None and model.decision.stop.code == 0


def test_rank_0_leaves() -> None:
    """The next oldest host has rank 0; a host that returns is the youngest."""
    model = Model(start=1, least=1).begin(a=1)
    model.discover(a=1, b=1).enlist(["b[0]"]).enlist(["a[0]"], commit=1)
    assert model.world == ["a[0]", "b[0]"]
    model.discover(b=1).enlist(["a[0]", "b[0]"], commit=2)
    assert model.world == ["b[0]"]
    model.finish_leaving().discover(a=1, b=1).enlist(["a[0]"]).enlist(["b[0]"], commit=3)
    assert model.world == ["b[0]", "a[0]"]
    assert model.state.workers[model.state.members[1]].id not in (1, 2), "a new process has a new number"


def test_slots_come_and_go() -> None:
    """The highest slots leave, survivors keep theirs."""
    model = Model(start=2, least=1).begin(a=2)
    model.discover(a=4).enlist(["a[2]", "a[3]"]).enlist(["a[0]", "a[1]"], commit=1)
    assert model.world == ["a[0]", "a[1]", "a[2]", "a[3]"]
    model.discover(a=1).enlist(["a[0]", "a[1]", "a[2]", "a[3]"], commit=2)
    assert model.world == ["a[0]"]


def test_leaving_host() -> None:
    """A host that has got notice is no failure, and is not used again while it is listed."""
    model = Model(start=4, least=2).begin(a=2, b=2)
    model.apply(changes.agent_leaving, "b", "SIGTERM")
    assert model.decisions[-1].notify == HostUpdateResult.removed
    model.exit("b[1]", 1)
    assert model.state.hosts["b"].not_before == 0.0, "what fails on its way out is not held against it"
    model.enlist(AB[:3], commit=5)
    assert model.world == ["a[0]", "a[1]"]
    model.finish_leaving()
    assert model.state.hosts["b"].agent is Agent.NONE and "goes away" in model.decision.why["b"]
    model.discover(a=2).discover(a=2, b=2)
    assert model.worker("b[0]").phase is Phase.SPAWNED


def test_a_host_that_is_not_listed_any_more_is_not_blamed() -> None:
    """It goes away, also if its worker fails before it has left."""
    model = Model(start=2, least=1).begin(a=1, b=1)
    model.discover(a=1)
    model.exit("b[0]", -9)
    assert model.state.hosts["b"].not_before == 0.0
    model.enlist(["a[0]"], commit=1, rolled_back=True).finish_leaving()
    model.discover(a=1, b=1)
    assert model.worker("b[0]").phase is Phase.SPAWNED


def test_cooldown() -> None:
    """The n-th delay is MIN times 2 to the n, and part of MIN; good behaviour halves n."""
    model = Model(start=4, least=2, cooldown=(1, 100)).begin(a=2, b=2)
    model.jitter = 0.5
    model.exit("b[0]", 1).enlist(["a[0]", "a[1]"], commit=1, rolled_back=True)
    model.finish_leaving()
    assert model.state.hosts["b"].not_before == pytest.approx(102.5)
    assert model.decision.look_again == pytest.approx(102.5)
    model.step(2.6).enlist(["b[0]", "b[1]"]).enlist(["a[0]", "a[1]"], commit=2)
    assert model.world == AB
    model.exit("b[0]", 1)
    assert model.state.hosts["b"].not_before == pytest.approx(102.6 + 4.5)
    model.enlist(["a[0]", "a[1]"], commit=3, rolled_back=True).finish_leaving()
    model.step(500)
    assert model.state.hosts["b"].blacklisted == 1


def test_a_host_that_comes_back_is_the_youngest() -> None:
    """Rank 0 stays where the state is, and survivors keep their ranks."""
    model = Model(start=2, least=1, cooldown=(1, 100)).begin(a=1, b=1)
    model.exit("a[0]", 1).enlist(["b[0]"], commit=1, rolled_back=True).finish_leaving()
    assert model.world == ["b[0]"]
    model.discover(a=1, b=1, c=1).enlist(["c[0]"]).step(1.5).enlist(["b[0]"], commit=2)
    assert model.world == ["b[0]", "c[0]"]
    model.step(1.0).enlist(["a[0]"]).enlist(["b[0]", "c[0]"], commit=3)
    assert model.world == ["b[0]", "c[0]", "a[0]"]
    assert model.decisions[-1].source == 0


def test_another_machine_with_the_same_name() -> None:
    model = Model(agents=False, start=1, least=1, cooldown=(1, 100)).discover(a=1)
    model.apply(changes.agent_ready, "a", "boot 1")
    model.discover(a=1, b=1).apply(changes.agent_ready, "b")
    model.exit("a[0]", 1)
    assert model.state.hosts["a"].blacklisted == 1
    model.apply(changes.agent_ended, "a")
    for boot_id, count in (("boot 1", 1), ("boot 2", 0)):
        state = changes.agent_ready(model.now, model.state, "a", boot_id)
        assert state.hosts["a"].blacklisted == count


def test_several_failures_allowed() -> None:
    """A slot is filled again, in place: nobody moves."""
    model = Model(start=4, least=4, most=4, failures_before_blacklist=3).begin(a=2, b=2)
    model.exit("a[1]", -9).enlist(["a[0]", "b[0]", "b[1]"], commit=4, rolled_back=True)
    assert model.state.generation == 1 and model.decision.waiting.startswith("4 ranks")
    model.enlist(["a[1]"])
    assert model.world == AB and model.decisions[-1].source == 0 and model.decisions[-1].sync


def test_all_fail() -> None:
    model = Model(start=4, least=2).begin(a=2, b=2)
    for name in AB:
        if model.decision.stop is None and any(
            each.name == name and each.phase in LIVING for each in model.state.workers.values()
        ):
            model.exit(name, 3)
    stop = model.decision.stop
    assert stop is not None and stop.code == 3 and stop.failure is not None
    assert stop.failure.name == "a[0]"


def test_all_hosts_fail() -> None:
    """Although two ranks live."""
    model = Model(start=4, least=2).begin(a=2, b=2)
    model.exit("a[0]", 1)
    assert model.decision.stop is None
    model.exit("b[0]", 2)
    stop = model.decision.stop
    assert stop is not None and stop.code == 1 and "every host" in stop.text


def test_too_few_are_left() -> None:
    model = Model(start=4, least=4, elastic_timeout=2).begin(a=2, b=2)
    model.exit("a[0]", -9).enlist(["b[0]", "b[1]"], commit=1, rolled_back=True)
    model.step(1.9)
    assert model.decision.stop is None, "they wait"
    model.step(0.5)
    stop = model.decision.stop
    assert stop is not None and stop.code == 1 and stop.failure is not None
    assert "Timed out waiting for minimum number of slots" in stop.text


def test_help_comes_in_time() -> None:
    model = Model(start=4, least=4, elastic_timeout=60).begin(a=2, b=2)
    model.exit("a[0]", -9).enlist(["b[0]", "b[1]"], commit=1, rolled_back=True)
    model.step(1).discover(a=2, b=2, c=2).enlist(["c[0]", "c[1]"])
    assert model.world == ["b[0]", "b[1]", "c[0]", "c[1]"]
    assert model.decisions[-1].sync and model.decisions[-1].source == 0


@pytest.mark.parametrize(("limit", "over"), [(0, 1), (1, 2), (2, 3)])
def test_reset_limit(limit: int, over: int) -> None:
    model = Model(start=1, least=1, reset_limit=limit).begin(a=1)
    for number in range(1, over + 1):
        assert model.decision.stop is None
        model.enlist(["a[0]"], commit=number)
    stop = model.decision.stop
    assert stop is not None and f"exceeded limit: {limit}" in stop.text and model.state.generation == over


def test_nobody_waits_for_slots_that_would_exceed_the_reset_limit() -> None:
    model = Model(start=4, least=4, reset_limit=0, elastic_timeout=600).begin(a=2, b=2)
    model.exit("a[0]", -9).enlist(["b[0]"], commit=1, rolled_back=True, culprit=0)
    assert model.decision.stop is None, "b[1] has not come"
    model.enlist(["b[1]"], commit=1, rolled_back=True, culprit=0)
    stop = model.decision.stop
    assert stop is not None and "exceeded limit: 0" in stop.text
    assert stop.failure is not None and stop.failure.name == "a[0]"


def test_futile_resets() -> None:
    model = Model(start=2, least=2).begin(a=2)
    for _ in range(3):
        assert model.decision.stop is None
        model.enlist(["a[0]", "a[1]"], commit=4, rolled_back=True, why="shapes differ")
        assert model.decisions[-1].world and model.decisions[-1].sync, "what was taken back may differ"
    model.enlist(["a[0]", "a[1]"], commit=4, rolled_back=True, why="shapes differ")
    stop = model.decision.stop
    assert stop is not None and stop.code == 1 and "shapes differ" in stop.text


def test_one_finishes_early() -> None:
    model = Model(start=3, least=1).begin(a=3)
    model.exit("a[1]", 0)
    assert model.decision.stop is None, "the others are perhaps about to"
    model.enlist(["a[0]"], commit=1, rolled_back=True, culprit=1)
    stop = model.decision.stop
    assert stop is not None and stop.code == 1
    assert stop.text.startswith("rank 1 finished while ranks 0,2 had not")


def test_one_that_never_joined_does_not_spoil_the_end() -> None:
    model = Model(start=2, least=1).begin(a=1, b=1)
    model.discover(a=1, b=1, c=1).exit("c[0]", -9).exit("a[0]", 0).exit("b[0]", 0)
    stop = model.decision.stop
    assert stop is not None and stop.code == 0 and stop.failure is None
    model = Model(start=2, least=1).begin(a=1, b=1)
    model.discover(a=1, b=1, c=1).exit("c[0]", -9).exit("a[0]", 7).exit("b[0]", 0)
    stop = model.decision.stop
    assert stop is not None and stop.code == 7, "the first of the world"


def test_all_finish() -> None:
    model = Model(start=2, least=1).begin(a=1, b=1)
    model.exit("a[0]", 0).exit("b[0]", 0)
    assert model.decision.stop is not None and model.decision.stop.code == 0


def test_programs_without_init() -> None:
    """They are not started twice, and the job is over when each slot has had one."""
    model = Model(agents=False, start=2, least=1).discover(a=1, b=1)
    model.apply(changes.agent_ready, "a")
    model.exit("a[0]", 0)
    assert model.decision.stop is None, "b has not started yet"
    model.apply(changes.agent_ready, "b")
    model.exit("b[0]", 0)
    assert model.decision.stop is not None and model.decision.stop.code == 0
    assert len(model.state.workers) == 2


def test_agent_is_lost() -> None:
    model = Model(start=4, least=2).begin(a=2, b=2)
    model.apply(changes.agent_lost, "a", "no answer for 5 s", 0.0)
    model.enlist(["b[0]", "b[1]"], commit=1, rolled_back=True, culprit=0, silent=True)
    assert model.world == ["b[0]", "b[1]"] and "no answer for 5 s" in model.decisions[-1].why["a"]


def test_nobody_of_the_last_world_is_left() -> None:
    model = Model(start=1, least=1).begin(a=1)
    model.discover(b=1).enlist(["b[0]"])
    model.enlist(["a[0]"], commit=1)
    stop = model.decision.stop
    assert stop is not None and stop.code == 1 and "no host of the last world remains" in stop.text


def test_state_is_never_lost_silently() -> None:
    """A world of newcomers only is not a continuation."""
    model = Model(start=1, least=1, failures_before_blacklist=9).begin(a=1)
    model.discover(a=1, b=1).enlist(["b[0]"]).enlist(["a[0]"], commit=5)
    model.exit("a[0]", 1)
    model.enlist(["b[0]"], commit=-1, rolled_back=True)  # it had not been synced
    stop = model.decision.stop
    assert stop is not None and "nobody who is left has the state" in stop.text


def test_a_commit_on_disk_takes_the_place_of_survivors() -> None:
    model = Model(start=2, least=1, elastic_timeout=10, durable=True).begin(a=1, b=1)
    model.apply(changes.committed, 1, 7)
    model.exit("a[0]", -9)
    model.exit("b[0]", -9)
    assert model.decision.stop is None and math.isfinite(model.decision.look_again)
    model.discover(a=1, b=1, c=1)
    model.enlist(["c[0]"])
    assert model.world == ["c[0]"]
    formed = next(each for each in reversed(model.decisions) if each.world is not None)
    assert formed.load and formed.sync and formed.source == 0
    # Nobody has the state but the disk; if that world is lost, too, it goes on waiting, but not for ever.
    model.exit("c[0]", -9)
    assert model.decision.stop is None
    model.step(10.5)
    assert model.decision.stop is not None and "Timed out" in model.decision.stop.text


def test_without_a_commit_there_is_nothing_on_disk() -> None:
    model = Model(start=2, least=1, durable=True).begin(a=1, b=1)
    model.exit("a[0]", -9)
    model.exit("b[0]", -9)
    assert model.decision.stop is not None
