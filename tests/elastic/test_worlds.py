"""What a worker carries from one world to the next, and what an elastic job refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from director import Director, directed

HERE = Path(__file__).parent
PROGRAM = HERE / "program_sets.py"
MEMBERS = HERE / "program_members.py"
WORLD = HERE / "program_world.py"
FAILED_PRECONDITION, UNKNOWN = -2, -4


def said(director: Director, key: str, worker: int) -> list[Any]:
    return [line[key] for line in director.lines if key in line and line["worker"] == worker]


def test_process_sets_errors_and_timelines_over_worlds(tmp_path: Path) -> None:
    timeline = tmp_path / "timeline.json"
    with directed(tmp_path, PROGRAM, HOROVOD_TIMELINE=str(timeline)) as director:
        workers = [director.start(rank, 3) for rank in range(3)]
        director.enlisted(workers, 0)
        director.stands(workers, director.assign(workers))
        director.until(lambda: all(said(director, "code", each) for each in workers), "an error")
        director.until(lambda: all(said(director, "total", each) for each in workers[:2]), "a sum")
        assert said(director, "code", workers[0]) == [FAILED_PRECONDITION]
        director.workers[workers[2]].kill()
        survivors = workers[:2]
        director.enlisted(survivors, 1)
        director.server.worker_ended(workers[2], "was killed")
        director.stands(survivors, director.assign(survivors))
        director.until(lambda: all(len(said(director, "total", each)) == 2 for each in survivors), "sums")
        for worker in survivors:
            assert said(director, "broken", worker) == [UNKNOWN]
            assert said(director, "after", worker) == ["fails at once"]
            one, two = said(director, "sets", worker)
            assert None not in one and len(set(one)) == 3
            # The second is everybody now; the third names a rank that is not there.
            assert two[0] not in (None, 0) and two[1:] == [0, None]
            assert said(director, "total", worker) == [2.0, 2.0]
        director.finish(survivors)
    names = sorted(path.name for path in tmp_path.glob("timeline*"))
    assert names == ["timeline.generation.1.json", "timeline.generation.2.json"]


def test_members_of_an_optimizers_process_set_are_those_of_the_present_world(tmp_path: Path) -> None:
    with directed(tmp_path, MEMBERS, OMP_NUM_THREADS="1") as director:

        def stand(workers: list[int], generation: int) -> None:
            director.stands(workers, director.assign(workers))
            # Ranks 1 and 2 have gradients of 2 and 3; others keep their own.
            lines = [[value, value, rank, generation] for rank, value in enumerate([1.0, 2.5, 2.5, 4.0])]
            pairs = list(zip(workers, lines, strict=True))
            director.until(
                lambda: all(line in said(director, "gradients", worker) for worker, line in pairs),
                "gradients",
            )

        first, second, third, fourth = workers = [director.start(rank, 4) for rank in range(4)]
        director.enlisted(workers, 0)
        stand(workers, 1)
        fifth = director.start()  # makes its optimizer when the others are long past that
        director.enlisted([fifth], 0)
        director.workers[first].kill()
        director.server.worker_ended(first, "was killed")
        director.enlisted([second, third, fourth], 1)
        stand([second, third, fourth, fifth], 2)
        for worker in (second, third):
            director.workers[worker].kill()
            director.server.worker_ended(worker, "was killed")
        left = [fourth, fifth]
        director.enlisted(left, 2)
        director.stands(left, director.assign(left))
        director.until(lambda: all(said(director, "refused", worker) for worker in left), "errors")
        for worker in left:
            assert "with --min-np 3 it waits for more" in said(director, "refused", worker)[0]
            assert director.workers[worker].wait(60) == 0


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"HOROVOD_TOPOLOGY": "2"}, "HOROVOD_TOPOLOGY"),
        ({"HOROVOD_CPU_OPERATIONS": "mpi"}, "MPI is not possible in an elastic job"),
        ({"HOROVOD_CONTROLLER": "mpi"}, "MPI is not possible in an elastic job"),
    ],
)
def test_what_an_elastic_job_refuses(tmp_path: Path, env: dict[str, str], words: str) -> None:
    with directed(tmp_path, WORLD, **env) as director:
        worker = director.start()
        assert director.workers[worker].wait(60) == 1
        director.until(lambda: worker in director.errors, "its words")
        assert "ValueError" in director.errors[worker] and words in director.errors[worker]


def test_a_communicator_is_refused(tmp_path: Path) -> None:
    program = tmp_path / "comm.py"
    program.write_text("import horovod.numpy as hvd\nhvd.init(comm=[0])\n")
    with directed(tmp_path, program) as director:
        worker = director.start()
        assert director.workers[worker].wait(60) == 1
        director.until(lambda: worker in director.errors, "its words")
        assert "hvd.init(comm=...) is not possible in an elastic job" in director.errors[worker]


def test_a_removed_worker_says_so_and_runs_its_last_words(tmp_path: Path) -> None:
    program = tmp_path / "removed.py"
    program.write_text(
        "import logging, sys\n"
        "import numpy as np\n"
        "import horovod.numpy as hvd\n"
        "logging.basicConfig(level=logging.INFO)\n"
        "try:\n"
        "    hvd.init()\n"
        "finally:\n"
        "    try:\n"
        "        hvd.allreduce(np.ones(1))\n"
        "    except hvd.HorovodInternalError:\n"
        "        print('too late', file=sys.stderr)\n"
    )
    with directed(tmp_path, program) as director:
        worker = director.start()
        director.enlisted([worker], 0)
        director.server.refuse(worker, "its host is gone")
        assert director.workers[worker].wait(60) == 0
        director.until(lambda: worker in director.errors, "its words")
        assert "localhost[0] has been removed from elastic job: its host is gone" in director.errors[worker]
        assert "too late" in director.errors[worker]
