"""The package of this tree is importable unless one is installed; hosts for the tests that need some."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import cluster_hosts
import pytest
import util_packages
from cluster_hosts import Hosts
from util_lag import Lag

# pytest has put this directory there, and tests/jax is not JAX where that is not installed.
sys.path[:] = [entry for entry in sys.path if entry != str(Path(__file__).parent)]

if importlib.util.find_spec("horovod") is None:
    sys.path.insert(0, str(Path(__file__).parents[1]))

# In the background of a script or under nohup they are ignored, and so they would be by what tests start.
for _number, _usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, _usual)

# The jobs of the tests are not the user's.
os.environ["XDG_STATE_HOME"] = os.path.join(tempfile.gettempdir(), f"horovod-tests-{os.getuid()}")

pytest_plugins = ["check_plugin", "pytester"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what has the marker `slow` unless it is asked for: `make test-slow`."""
    if "slow" in config.option.markexpr:
        return
    slow = {item for item in items if item.get_closest_marker("slow")}
    if slow:
        config.hook.pytest_deselected(items=list(slow))
        items[:] = [item for item in items if item not in slow]


@pytest.fixture(scope="session")
def mpirun() -> str:
    """The path of the system's mpirun."""
    reason = util_packages.why_not({"mpirun": "openmpi-bin"})
    if reason is not None:
        pytest.skip(reason)
    found = shutil.which("mpirun")
    assert found is not None
    return found


@pytest.fixture
def lag() -> Iterator[Lag]:
    """Measures how busy the machine is during the test."""
    measuring = Lag()
    yield measuring
    measuring.stop()


@pytest.fixture(scope="session")
def all_hosts() -> Hosts:
    """Three; each test must leave them as it found them."""
    reason = cluster_hosts.why_not()
    if reason is not None:
        pytest.skip(reason)
    return cluster_hosts.shared()


@pytest.fixture
def sixteen_hosts() -> Iterator[Hosts]:
    """As hosts."""
    reason = cluster_hosts.why_not()
    if reason is not None:
        pytest.skip(reason)
    hosts = cluster_hosts.shared(16)
    yield hosts
    hosts.wait_until_empty()


@pytest.fixture
def hosts(all_hosts: Hosts) -> Iterator[Hosts]:
    """The hosts. Afterwards no process may be left on any of them."""
    yield all_hosts
    all_hosts.wait_until_empty()


def pytest_sessionfinish() -> None:
    cluster_hosts.close_shared()
