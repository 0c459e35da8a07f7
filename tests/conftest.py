"""The package of this tree is importable unless one is installed; hosts for the tests that need some."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import util_packages
from cluster_hosts import Hosts, why_not
from runner_util import wait_until
from util_lag import Lag

if importlib.util.find_spec("horovod") is None:
    sys.path.insert(0, str(Path(__file__).parents[1]))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what has the marker `slow` unless it is asked for: `make test-slow`."""
    if "slow" in config.option.markexpr:
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in set(slow)]


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
def all_hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Three for the whole session; each test must leave them as it found them."""
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    hosts = Hosts(3, tmp_path_factory.mktemp("cluster"))
    yield hosts
    hosts.close()


@pytest.fixture
def hosts(all_hosts: Hosts) -> Iterator[Hosts]:
    """The hosts. Afterwards no process may be left on any of them."""
    yield all_hosts
    try:
        # ssh connections take a moment to unwind.
        wait_until(lambda: not all_hosts.everyone(), 20, "processes are left on the hosts")
    except AssertionError:
        for host in range(1, all_hosts.count + 1):
            print(f"left on host{host}:", all_hosts.command_lines(host))
        all_hosts.kill_all()
        raise
