"""docs/names.md and its table: what they say about each name is so."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from util_packages import needs
from util_paths import ROOT

from horovod import _absent
from horovod.common import names
from horovod.common.names import Entry, Verdict

_FRAMEWORKS = {
    "horovod.torch": "torch",
    "horovod.tensorflow": "tensorflow",
    "horovod.keras": "keras",
    "horovod.mxnet": "mxnet.base",  # tests/mxnet could be taken for a package
}

# Of the original's packages; those of horovod.ray and horovod.spark go by their package.
_MODULES = {
    "horovod.common": "basics elastic exceptions process_sets util",
    "horovod.data": "data_loader_base",
    "horovod.keras": "callbacks elastic",
    "horovod.runner": "gloo_run js_run launch mpi_run run_task task_fn",
    "horovod.runner.common.service": "compute_service driver_service task_service",
    "horovod.runner.common.util": "codec config_parser env host_hash hosts network safe_shell_exec secret "
    "settings timeout tiny_shell_exec",
    "horovod.runner.driver": "driver_service",
    "horovod.runner.elastic": "constants discovery driver registration rendezvous settings worker",
    "horovod.runner.http": "http_client http_server",
    "horovod.runner.task": "task_service",
    "horovod.runner.util": "cache lsf network remote streams threads",
    "horovod.tensorflow": "compression elastic functions gradient_aggregation gradient_aggregation_eager "
    "mpi_lib mpi_ops sync_batch_norm util",
    "horovod.tensorflow.data": "compute_service compute_worker",
    "horovod.tensorflow.keras": "callbacks elastic",
    "horovod.torch": "compression elastic functions mpi_lib mpi_lib_v2 mpi_ops optimizer sync_batch_norm",
    "horovod.torch.elastic": "sampler state",
}

TABLE = list(names.entries())
THERE = [entry for entry in TABLE if entry.module not in _absent.ABSENT]


def need_framework(module: str) -> None:
    for start, framework in _FRAMEWORKS.items():
        if module == start or module.startswith(f"{start}."):
            needs(framework)


def test_page_is_current() -> None:
    assert (ROOT / "docs" / "names.md").read_text() == names.page(), (
        "run: python -m horovod.common.names > docs/names.md"
    )


def test_every_name_once_and_every_difference_explained() -> None:
    seen: dict[tuple[str, str], Entry] = {}
    for entry in TABLE:
        assert entry.text or entry.verdict is Verdict.YES, entry
        for name in entry.names:
            before = seen.setdefault((entry.module, name), entry)
            assert before.verdict is entry.verdict, (entry.module, name)


@pytest.mark.parametrize("module", sorted({entry.module for entry in THERE}))
def test_what_is_there(module: str) -> None:
    need_framework(module)
    imported = importlib.import_module(module)
    for entry in THERE:
        for name in entry.names if entry.module == module else ():
            if entry.verdict is not Verdict.NO:
                assert hasattr(imported, name), name
                continue
            with pytest.raises((ImportError, AttributeError)) as caught:
                getattr(imported, name)
            assert f"{module}.{name} is not there: " in str(caught.value)


@pytest.mark.parametrize("module", sorted(_absent.ABSENT))
def test_what_is_not_there(module: str) -> None:
    need_framework(module)
    text = rf"^{module}(\.more)? is not there: {_absent.ABSENT[module][:20]}"
    for name in (module, f"{module}.more"):
        with pytest.raises(ImportError, match=text) as caught:
            importlib.import_module(name)
        assert not isinstance(caught.value, ModuleNotFoundError)


@pytest.mark.parametrize("package", _MODULES)
def test_modules_of_the_original(package: str) -> None:
    """Nobody is left alone with a ModuleNotFoundError."""
    need_framework(package)
    for module in _MODULES[package].split():
        try:
            importlib.import_module(f"{package}.{module}")
        except ImportError as error:
            assert " is not there: " in str(error), error


def test_from_a_package() -> None:
    with pytest.raises(ImportError, match=r"^horovod\.spark is not there: running on Spark"):
        from horovod import spark  # noqa: F401
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'horovod\.nonsense'"):
        importlib.import_module("horovod.nonsense")


def test_elastic_decorator() -> None:
    """As programs have it: hvd.elastic, without an import of its own."""
    code = "import {0} as hvd\nhvd.elastic.run(print), hvd.elastic.State, hvd.elastic.ObjectState\n"
    for module, framework in {**_FRAMEWORKS, "horovod.numpy": "numpy", "horovod.jax": "jax"}.items():
        if module != "horovod.mxnet" and importlib.util.find_spec(framework):
            done = subprocess.run(
                [sys.executable, "-c", code.format(module)], capture_output=True, text=True, timeout=120
            )
            assert done.returncode == 0, done.stderr
    hvd = pytest.importorskip("horovod.torch")
    with pytest.raises(AttributeError, match=r"module 'horovod\.torch' has no attribute 'nonsense'"):
        _ = hvd.nonsense


def test_a_module_that_comes_to_exist_is_found(tmp_path: Path) -> None:
    code = (
        "import horovod, sys\n"
        f"horovod.__path__.append({str(tmp_path)!r})\n"
        "import horovod.spark; print(horovod.spark.here)\n"
    )
    (tmp_path / "spark.py").write_text("here = 'found'\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "found\n", done.stderr


def test_readme_says_what_works() -> None:
    section = (ROOT / "README.md").read_text().partition("## What works today\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("- ")]
    assert len(lines) == 5
    for word in ("GPU", "NCCL", "Linux", "wheel", "docs/names.md"):
        assert word in section, word
