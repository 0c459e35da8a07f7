"""horovod.jax under the real launcher, where a launch of checks would not do."""

import subprocess
import sys
from pathlib import Path

from util_launch import launch
from util_packages import needs

needs("jax")

HERE = Path(__file__).parent


def test_peer_dies() -> None:
    """While a program runs in the call; test_jax_deaths.py has those that run on."""
    outcome = launch(3, HERE / "program_peer_dies.py", timeout=60)
    assert outcome.code != 0 and "rank 1 on localhost failed first" in outcome.output, outcome.output
    for rank in (0, 2):
        assert outcome.output.count(f"rank {rank} heard of it") == 1, outcome.output


def test_one_device_a_process() -> None:
    code = (
        "import jax, horovod.jax as hvd; hvd.init()\n"
        "try: jax.jit(hvd.allreduce)(jax.numpy.ones(2))\n"
        "except ValueError as error: print(error)\n"
        "print(hvd.allreduce(jax.numpy.ones(2)))"
    )
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    outcome = launch(1, "-c", code, timeout=60, **flags)
    assert "JAX has 2 here" in outcome.output and "[1. 1.]" in outcome.output, outcome.output


def test_import_needs_no_optax() -> None:
    code = "import sys, horovod.jax; sys.exit('optax' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_import_error_of_old_versions() -> None:
    code = "import jax; jax.__version__, jax.__version_info__ = '0.4.38', (0, 4, 38); import horovod.jax"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert "ImportError: horovod.jax needs JAX 0.5.3 or later, this is 0.4.38" in done.stderr, done.stderr
