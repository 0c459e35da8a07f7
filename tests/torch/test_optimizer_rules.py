"""DistributedOptimizer with one rank, without hvd.init(), and when a rank dies, under the real launcher."""

import pytest
from util_launch import launch

ALONE = """
import contextlib, horovod.torch as hvd, torch, os
from horovod.torch._adasum_step import AdasumStep
hvd.init()
for op in (hvd.Average, hvd.Adasum):
    p = torch.nn.Parameter(torch.zeros(2))
    opt = hvd.DistributedOptimizer(torch.optim.SGD([p], lr=1.0), op=op, groups=2)
    elastic = "HOROVOD_ELASTIC" in os.environ
    assert bool(opt._horovod) == elastic
    # What combines updates in a larger world does so from the beginning.
    assert isinstance(opt._horovod, AdasumStep) == (elastic and op == hvd.Adasum)
    p.sum().backward()
    opt.synchronize()
    with contextlib.nullcontext() if op == hvd.Adasum and elastic else opt.skip_synchronize():
        opt.step()
    assert p.tolist() == [-1.0, -1.0]
print("trained")
"""


@pytest.mark.parametrize("elastic", [{}, {"HOROVOD_ELASTIC": "1"}])
def test_one_rank(elastic: dict[str, str]) -> None:
    """Without hooks, unless the job may grow."""
    outcome = launch(1, "-c", ALONE, **elastic)
    assert outcome.code == 0 and "trained" in outcome.output, outcome.output


def test_needs_init() -> None:
    outcome = launch(
        1,
        "-c",
        "import horovod.torch as hvd, torch; "
        "hvd.DistributedOptimizer(torch.optim.SGD([torch.nn.Parameter(torch.zeros(2))], lr=1.0))",
    )
    assert outcome.code != 0 and "hvd.init()" in outcome.output, outcome.output


FAILURE = """
import horovod.torch as hvd, torch, os, signal
hvd.init()
model = torch.nn.Linear(4, 4)
opt = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), model.named_parameters())
try:
    for step in range(1000):
        if step == 3 and hvd.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        opt.zero_grad()
        model(torch.ones(1, 4)).sum().backward()
        opt.step()
except hvd.HorovodInternalError as error:
    print("rank 0 noticed:", error)
    opt.load_state_dict(opt.state_dict())
    opt.zero_grad()
    print("and can go on")
"""


def test_a_rank_dies() -> None:
    """The survivor gets HorovodInternalError from backward() or step(), and the optimizer can be restored."""
    outcome = launch(2, "-c", FAILURE, timeout=120)
    assert outcome.code != 0 and "rank 0 noticed" in outcome.output and "can go on" in outcome.output, (
        outcome.output
    )
