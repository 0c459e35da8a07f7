"""HOROVOD_TOPOLOGY: which ranks form a group, and what is refused."""

from __future__ import annotations

import pytest
from bootstrap_ranks import KEY, ranks
from util_launch import launch

from horovod._bootstrap.identity import Identity
from horovod._bootstrap.rendezvous.server import RendezvousServer
from horovod._bootstrap.topology import apart, grouping, groups_of
from horovod._bootstrap.world import connect
from horovod.common.config import read
from horovod.runner.launch import run_commandline


def test_groups() -> None:
    assert groups_of((2, 1, 3), 6) == [0, 0, 1, 2, 2, 2]
    assert grouping([5, 3, 5], None) == [0, 1, 0]
    assert grouping([0] * 4, [0, 0, 1, 1]) == [0, 0, 1, 1]
    # Of a job of six only ranks 2 to 5 take part.
    assert grouping([0] * 4, groups_of((2, 2, 2), 6)[2:]) == [0, 0, 1, 1]
    # Finer than the hosts are.
    assert grouping([0, 0, 1, 1], [0, 1, 2, 2]) == [0, 1, 2, 2]


def test_a_group_cannot_be_spread_over_hosts() -> None:
    assert apart([0, 0, 1], [0, 0, 0]) == (0, 2)
    assert apart([0, 0, 1, 1], [0, 1, 2, 2]) is None
    with RendezvousServer(KEY) as server, ranks() as running:
        running.start_all(
            4, port=server.port, transport="auto", hosts=["a", "a", "b", "b"], groups=[0, 1, 1, 1]
        )
        pids = [process.pid for process in running.processes]
        for result in running.results():
            assert result["kind"] == "ValueError" and result["leaked"] == 0, result
            text = f"rank 1 (host a, pid {pids[1]}) and rank 2 (host b, pid {pids[2]}) into one group"
            assert text in result["error"], result


@pytest.mark.parametrize(("text", "size"), [("2,2", 6), ("4", 3), ("1,1", 1)])
def test_numbers_that_do_not_add_up(text: str, size: int) -> None:
    topology = read({"HOROVOD_TOPOLOGY": text}).topology
    assert topology is not None
    with pytest.raises(ValueError, match=f"HOROVOD_TOPOLOGY={text} places .* but the job has {size}"):
        groups_of(topology, size)


@pytest.mark.parametrize("text", ["2,0", "2,-1", "2,,2", "two", "2x2"])
def test_bad_values(text: str) -> None:
    with pytest.raises(ValueError, match=r"HOROVOD_TOPOLOGY=.* a comma list of integers >= 1"):
        read({"HOROVOD_TOPOLOGY": text})


def test_launcher_refuses_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOROVOD_TOPOLOGY", "2,2")
    assert run_commandline(["-np", "3", "true"]) == 2
    assert "HOROVOD_TOPOLOGY=2,2 places 4 ranks, but the job has 3" in capsys.readouterr().err


def test_other_transports_have_no_groups() -> None:
    with pytest.raises(ValueError, match=r"HOROVOD_TOPOLOGY .* not 'tcp'"):
        connect(
            Identity(0, 2, 0, 2, 0, 1, "here", ("127.0.0.1", 1), KEY),
            transport="tcp",
            groups=[0, 1],
            timeout=1,
            peer_timeout=1,
            process_sets=[],
            scope="",
            shm_bytes=lambda size: (1,),
        )


def test_ranks_of_one_host_in_groups() -> None:
    with RendezvousServer(KEY) as server, ranks() as running:
        running.start_all(5, port=server.port, transport="auto", groups=[0, 0, 1, 2, 2])
        for rank, result in enumerate(running.results()):
            assert "error" not in result, result
            assert (result["transport"], result["leaked"]) == ("hierarchical", 0)
            assert result["hosts"] == [0, 0, 1, 2, 2]
            assert result["has_memory"] == (rank != 2)
            # They are on one host all the same, and can watch each other.
            assert all(same for _, _, same in result["peers"])


def test_all_ranks_must_have_the_same() -> None:
    with RendezvousServer(KEY) as server, ranks() as running:
        for rank, groups in enumerate(([0, 0, 1], [0, 0, 1], [0, 1, 1])):
            running.start(rank=rank, size=3, port=server.port, transport="auto", groups=groups)
        for result in running.results():
            assert "HOROVOD_TOPOLOGY must be the same on all ranks" in result["error"]


def test_no_silent_change_of_the_order() -> None:
    with RendezvousServer(KEY) as server, ranks() as running:
        for rank in range(3):
            running.start(
                rank=rank,
                size=3,
                port=server.port,
                transport="auto",
                groups=[0, 0, 1],
                elsewhere=rank == 1,
            )
        for result in running.results():
            assert result["kind"] == "ValueError" and "HOROVOD_TOPOLOGY" in result["error"]


def test_place_on_the_real_host_is_unchanged() -> None:
    code = (
        "import numpy as np, horovod.numpy as hvd\n"
        "hvd.init()\n"
        "assert (hvd.local_size(), hvd.local_rank(), hvd.cross_size()) == (4, hvd.rank(), 1)\n"
        # In flat order the first 1.0 is lost in what follows.
        "value = [1.0, 2.0**60, -(2.0**60), 1.0][hvd.rank()]\n"
        "print('total', hvd.allreduce(np.array([value]), op=hvd.Sum)[0])\n"
    )
    outcomes = {
        topology: launch(4, "-c", code, HOROVOD_TOPOLOGY=topology).output for topology in ("4", "1,3")
    }
    assert outcomes["4"].count("total 1.0") == 4
    assert outcomes["1,3"].count("total 2.0") == 4
