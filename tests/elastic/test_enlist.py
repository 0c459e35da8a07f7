"""From one world to the next: enlistments, assignments and what goes wrong between them."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from director import Director, directed

PROGRAM = Path(__file__).with_name("program_world.py")


def lines_of(director: Director, generation: int) -> dict[int, dict[str, object]]:
    return {line["worker"]: line for line in director.lines if line.get("generation") == generation}


def test_survivors_go_on_without_the_dead(tmp_path: Path) -> None:
    with directed(tmp_path, PROGRAM) as director:
        workers = [director.start(rank, 3) for rank in range(3)]
        director.enlisted(workers, 0)
        director.stands(workers, director.assign(workers))
        killed_at = time.time()
        director.workers[workers[1]].kill()
        survivors = [workers[0], workers[2]]
        words = director.enlisted(survivors, 1)
        assert [each.culprit for each in words] == [1, 1]
        assert all(each.rolled_back and "rank 1" in each.why for each in words), words
        director.server.worker_ended(workers[1], "was killed")
        director.stands(survivors, director.assign(survivors))
        said = lines_of(director, 2)
        assert {line["rank"] for line in said.values()} == {0, 1}
        for worker, line in said.items():
            assert line["pid"] == director.workers[worker].pid
            assert line["environ"] == f"{line['rank']}/2"
            assert line["start_rank"] == str(workers.index(worker))
        print(max(float(str(line["time"])) for line in said.values()) - killed_at, "s")
        director.finish(survivors)


def test_a_world_of_one_grows_and_shrinks(tmp_path: Path) -> None:
    with directed(tmp_path, PROGRAM) as director:
        first = director.start()
        director.enlisted([first], 0)
        director.stands([first], director.assign([first]))
        second = director.start()
        director.enlisted([second], 0)
        # Nothing tells the first one yet, so it is asked to come by the end of a third.
        third = director.start()
        director.enlisted([third], 0)
        director.workers[third].kill()
        director.until(lambda: director.withdrawn(third), "the third is missed")
        director.stop.touch()
        assert director.workers[first].wait(60) == 0
        director.server.worker_ended(first, "has ended")
        director.stop.unlink()
        director.stands([second], director.assign([second]))
        director.finish([second])


def test_a_member_that_dies_before_it_joins_fails_only_that_world(tmp_path: Path) -> None:
    with directed(tmp_path, PROGRAM) as director:
        workers = [director.start(rank, 3) for rank in range(3)]
        director.enlisted(workers, 0)
        os.kill(director.workers[workers[2]].pid, signal.SIGSTOP)
        generation = director.assign(workers)
        director.events.clear()
        director.workers[workers[2]].kill()
        director.until(lambda: director.failed(generation) is not None, "the first world fails")
        failed = director.failed(generation)
        assert failed is not None and failed.workers == (workers[2],)
        director.enlisted(workers[:2], 0)
        director.stands(workers[:2], director.assign(workers[:2]))
        director.finish(workers[:2])


def test_a_frozen_newcomer_is_noticed(tmp_path: Path) -> None:
    with directed(tmp_path, PROGRAM, HOROVOD_PEER_TIMEOUT_SECONDS="1") as director:
        worker = director.start()
        director.enlisted([worker], 0)
        os.kill(director.workers[worker].pid, signal.SIGSTOP)
        director.until(lambda: director.withdrawn(worker), "silence")
        director.events.clear()
        os.kill(director.workers[worker].pid, signal.SIGCONT)
        director.enlisted([worker], 0)  # it comes again
        director.stands([worker], director.assign([worker]))
        director.finish([worker])


def test_a_frozen_member_is_at_fault(tmp_path: Path) -> None:
    with directed(tmp_path, PROGRAM, HOROVOD_PEER_TIMEOUT_SECONDS="1") as director:
        workers = [director.start(rank, 2) for rank in range(2)]
        director.enlisted(workers, 0)
        os.kill(director.workers[workers[1]].pid, signal.SIGSTOP)
        generation = director.assign(workers)
        director.until(lambda: director.failed(generation) is not None, "silence")
        failed = director.failed(generation)
        assert failed is not None and failed.workers == (workers[1],)


def test_a_removed_worker_ends_with_0(tmp_path: Path) -> None:
    with directed(tmp_path, PROGRAM) as director:
        worker = director.start()
        director.enlisted([worker], 0)
        director.server.refuse(worker, "its host is gone")
        assert director.workers[worker].wait(60) == 0


def test_a_number_that_was_declared_dead_is_refused(tmp_path: Path) -> None:
    with directed(tmp_path, PROGRAM) as director:
        director.server.worker_ended(1, "was killed")
        worker = director.start()
        assert director.workers[worker].wait(60) == 0
        assert not director.events


def test_a_launcher_that_is_gone_ends_the_wait(tmp_path: Path) -> None:
    with directed(tmp_path, PROGRAM) as director:
        worker = director.start()
        director.enlisted([worker], 0)
        director.server.stop()
        assert director.workers[worker].wait(60) == 1
        director.until(lambda: worker in director.errors, "its words")
        assert "LauncherGone" in director.errors[worker]
