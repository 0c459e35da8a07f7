"""The package without an engine: what imports cost, helpers, and the C ABI's layout."""

import subprocess
import sys

import pytest
from util_launch import launch
from util_packages import needs
from util_paths import ROOT

from horovod.common import util
from horovod.common.exceptions import HorovodVersionMismatchError, HostsUpdatedInterrupt
from horovod.common.session import Place
from horovod.common.startup import place_of

# Each takes a millisecond or more, or brings others that do.
UNNEEDED = {
    "argparse",
    "asyncio",
    "cloudpickle",
    "concurrent.futures",
    "email",
    "encodings.idna",
    "importlib.metadata",
    "ipaddress",
    "locale",
    "logging",
    "pathlib",
    "psutil",
    "random",
    "secrets",
    "ssl",
    "subprocess",
    "tempfile",
    "urllib.parse",
    "yaml",
    "horovod.runner",
    # What only launchers, or jobs without horovodrun, need.
    "horovod._bootstrap.identity.launchers",
    "horovod._bootstrap.discovery.first_rank",
    "horovod._bootstrap.rendezvous.membership",
    "horovod._bootstrap.rendezvous.server",
}


def modules_after(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); {code}; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return set(done.stdout.split())


def test_import_horovod_is_light() -> None:
    loaded = modules_after("import horovod, horovod.common.exceptions")
    assert not loaded & {"numpy", "torch", "tensorflow", "ctypes", "horovod._core"}


def test_import_horovod_numpy_loads_no_framework() -> None:
    assert not modules_after("import horovod.numpy") & {
        "torch",
        "tensorflow",
        "jax",
        "keras",
        "mxnet",
        "ml_dtypes",
    }


@pytest.mark.parametrize(("framework", "ranks"), [("numpy", 2), ("torch", 1)])
def test_a_rank_loads_only_what_it_needs(framework: str, ranks: int) -> None:
    """Hundreds of ranks that start on few processors spend most of that time importing."""
    needs(framework)
    code = (
        f"import sys, {framework}\n"
        "before = set(sys.modules)\n"
        f"import horovod.{framework} as hvd\n"
        "hvd.init()\n"
        "print('loaded', *sorted(set(sys.modules) - before), flush=True)\n"
    )
    outcome = launch(ranks, "-c", code)
    assert outcome.code == 0, outcome.output
    lines = [line for line in outcome.output.splitlines() if "loaded " in line]
    assert len(lines) == ranks, outcome.output
    for line in lines:
        loaded = set(line.partition("loaded ")[2].split())
        assert "horovod._bootstrap.world.builder" in loaded
        assert not UNNEEDED & loaded


@pytest.mark.parametrize(
    ("rank", "hosts", "expected"),
    [
        (0, ["a"], Place(0, 1, 0, 1, 0, 1, True)),
        (3, ["a", "a", "b", "b"], Place(3, 4, 1, 2, 1, 2, True)),
        (1, ["a", "a", "b"], Place(1, 3, 1, 2, 0, 1, False)),
        (2, ["b", "a", "b", "a"], Place(2, 4, 1, 2, 0, 2, True)),
    ],
)
def test_place(rank: int, hosts: list[str], expected: Place) -> None:
    assert place_of(rank, hosts) == expected


def test_exceptions_carry_their_attributes() -> None:
    assert HostsUpdatedInterrupt().skip_sync is False and HostsUpdatedInterrupt(True).skip_sync is True
    error = HorovodVersionMismatchError("torch", "1.0", "2.0")
    assert (error.name, error.version, error.installed_version) == ("torch", "1.0", "2.0")
    assert isinstance(error, ImportError)


def test_env_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    monkeypatch.setenv("HVD_TEST_A", "before")
    with util.env(HVD_TEST_A="within", HVD_TEST_B="new", HVD_TEST_C=None):
        assert os.environ["HVD_TEST_A"] == "within" and os.environ["HVD_TEST_B"] == "new"
        assert "HVD_TEST_C" not in os.environ
    assert os.environ["HVD_TEST_A"] == "before" and "HVD_TEST_B" not in os.environ


def test_small_helpers() -> None:
    assert util.split_list([1, 2, 3, 4, 5], 3) == [[1, 2], [3, 4], [5]]
    assert util.split_list([1], 2) == [[1], []]
    assert util.support_non_legacy_keras_optimizers()
    assert util.get_average_backwards_compatibility_fun(None)(4, None) == 4
    assert util.is_iterable("a") and not util.is_iterable(5)
    assert [n for n in range(-1, 10) if util.num_rank_is_power_2(n)] == [1, 2, 4, 8]
    assert util.gloo_built() and not util.nccl_built()
    assert not util.extension_available("no_such_framework") and not util.gpu_available("no_such_framework")


@pytest.mark.parametrize(
    ("version", "target", "expected"),
    [
        ("2.1.0", "2.0.9", True),
        ("2.0", "2.0.0", True),
        ("1.13.1+cpu", "2.0.0", False),
        ("2.4.0rc1", "2.4.0", True),
    ],
)
def test_versions(version: str, target: str, expected: bool) -> None:
    assert util.is_version_greater_equal_than(version, target) is expected


@pytest.mark.parametrize("target", ["2.0", "2", "a.b.c", ""])
def test_bad_target_version(target: str) -> None:
    with pytest.raises(ValueError, match=r"x\.y\.z"):
        util.is_version_greater_equal_than("2.0.0", target)
