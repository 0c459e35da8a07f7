"""horovod.tensorflow under the real launcher, where a launch of checks would not do."""

from pathlib import Path

from util_launch import launch
from util_packages import needs

needs("tensorflow")


def test_a_peer_dies() -> None:
    program = Path(__file__).with_name("program_peer_dies.py")
    outcome = launch(2, program, TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="-1")
    assert outcome.code != 0 and "lost the peer as expected" in outcome.output, outcome.output
    assert "rank 1 on localhost failed first" in outcome.output, outcome.output
