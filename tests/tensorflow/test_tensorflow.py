"""horovod.tensorflow under the real launcher, where a launch of checks would not do."""

import re
from pathlib import Path

from util_launch import launch
from util_packages import needs

needs("tensorflow")


def test_a_peer_dies() -> None:
    program = Path(__file__).with_name("program_peer_dies.py")
    outcome = launch(2, program, TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="-1")
    assert outcome.code != 0 and "lost the peer as expected" in outcome.output, outcome.output
    assert "rank 1 on localhost failed first" in outcome.output, outcome.output


def test_a_rank_that_stands_in_python_within_a_graph() -> None:
    """The stall report has the line there, and that of the program that waits for it."""
    program = Path(__file__).with_name("program_stands_in_python.py")
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    outcome = launch(2, program, timeout=120, HOROVOD_STALL_CHECK_TIME_SECONDS="2", **quiet)
    assert outcome.code == 0, outcome.output
    assert re.search(r"awaited has waited .* for rank 1 \(host \S+, pid \d+\)", outcome.output)
    lines = program.read_text().splitlines()
    slept, called = (
        lines.index("    time.sleep(9)  # the line") + 1,
        lines.index("    step(tf.ones([3]))") + 1,
    )
    for place in (
        rf"Rank 1 .*: \S*python\.py:{slept} loading <-",
        rf"Rank 1 MainThread: .*python\.py:{called} main",
    ):
        assert re.search(place, outcome.output), outcome.output
