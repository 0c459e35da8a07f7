"""Modules of the original Horovod that are not there: importing one says what to use instead."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_LAUNCH = "use horovodrun, horovod.run() or horovod.runner.launch.run_commandline(), which start a whole job"
_OBJECTS = "exchange objects with hvd.broadcast_object() and hvd.allgather_object()"
_ELASTIC = "use horovodrun --min-np or horovod.run(func, min_num_proc=...), which decide about the ranks"
_SHELL = "use horovod.runner.common.util.safe_shell_exec.execute()"
_LIBRARY = "there is one library for all frameworks. Use the functions of {}.mpi_ops"

# With what is below them. A module that comes to exist is found first, whatever is written here.
ABSENT = {
    "horovod.ray": (
        "running on Ray is yet to come. Use horovodrun -H or horovod.run(func, hosts=...) on the machines of "
        "the cluster"
    ),
    "horovod.runner.common.service": _LAUNCH,
    "horovod.runner.common.util.codec": _OBJECTS,
    "horovod.runner.common.util.config_parser": "give horovodrun its flags, or --config-file",
    "horovod.runner.common.util.host_hash": "use horovodrun, which tells hosts apart by itself",
    "horovod.runner.common.util.tiny_shell_exec": _SHELL,
    "horovod.runner.driver": _LAUNCH,
    "horovod.runner.elastic.driver": _ELASTIC,
    "horovod.runner.elastic.registration": _ELASTIC,
    "horovod.runner.gloo_run": _LAUNCH,
    "horovod.runner.http": _LAUNCH,
    "horovod.runner.js_run": "use horovodrun --jsrun",
    "horovod.runner.mpi_run": "use horovodrun --mpi",
    "horovod.runner.run_task": _LAUNCH,
    "horovod.runner.task": _LAUNCH,
    "horovod.runner.task_fn": _LAUNCH,
    "horovod.runner.util.cache": "checks of hosts are not kept: horovodrun makes them in each job",
    "horovod.runner.util.lsf": "use horovodrun, which finds the hosts of a job of LSF by itself",
    "horovod.runner.util.network": "use horovod.runner.common.util.network",
    "horovod.runner.util.remote": "use horovodrun -H, which goes to other hosts by ssh",
    "horovod.runner.util.streams": _SHELL,
    "horovod.spark": (
        "running on Spark is yet to come. Let Spark write the data as Parquet files, and train with "
        "horovodrun -H or horovod.run(func, hosts=...)"
    ),
    "horovod.tensorflow.gradient_aggregation_eager": (
        "use horovod.keras.DistributedOptimizer(optimizer, backward_passes_per_step=...)"
    ),
    "horovod.tensorflow.mpi_lib": _LIBRARY.format("horovod.tensorflow"),
    "horovod.torch.mpi_lib": _LIBRARY.format("horovod.torch"),
    "horovod.torch.mpi_lib_v2": _LIBRARY.format("horovod.torch"),
}

_TOLD = "horovod.common.elastic.notification_manager hears the launcher; workers listen to nobody"

# Of modules that are there: names that are not.
ABSENT_NAMES = {
    "horovod.common.util": {
        "check_installed_version get_ext_suffix get_extension_full_path": (
            "there is one library for all frameworks and versions. Use check_extension() of this module"
        ),
    },
    "horovod.runner.common.util.network": {
        "AckResponse BasicClient BasicService PingRequest PingResponse Wire": (
            "it unpickled what came over the network. To start processes use horovodrun or horovod.run(); to "
            "exchange objects between ranks hvd.broadcast_object() and hvd.allgather_object()"
        ),
    },
    "horovod.runner.elastic.discovery": {"DiscoveredHosts HostManager HostState": _ELASTIC},
    "horovod.runner.elastic.worker": {
        "WorkerNotificationClient WorkerNotificationManager WorkerNotificationService": _TOLD,
    },
    "horovod.runner.launch": {
        "check_build": "use horovodrun --check-build",
        "gloo_run js_run mpi_run": _LAUNCH,
    },
}


def sentence(module: str) -> str | None:
    """What to say about a module; None if it is not one of these."""
    for name, instead in ABSENT.items():
        if module == name or module.startswith(f"{name}."):
            return f"{module} is not there: {instead}"
    return None


def missing_attribute(module: str, name: str) -> AttributeError:
    """For a module's ``__getattr__``; submodules may be used without being imported."""
    return AttributeError(
        sentence(f"{module}.{name}") or f"module {module!r} has no attribute {name!r}", name=name
    )


def import_later(module: str, *submodules: str, **places: str) -> None:
    """Has names of a module imported when they are asked for: submodules, and what is in others, at
    `places`. Any other name that is missing is a missing_attribute().

    Not as a ``__getattr__`` that type checkers see: they find a misspelt name by themselves.
    """

    def find(name: str) -> Any:
        if name in submodules:
            return importlib.import_module(f"{module}.{name}")
        if name in places:
            return getattr(importlib.import_module(places[name]), name)
        raise missing_attribute(module, name)

    vars(sys.modules[module])["__getattr__"] = find


def without_names(module: str) -> None:
    """Has those of ABSENT_NAMES say what to use instead."""
    instead = {name: text for names, text in ABSENT_NAMES.get(module, {}).items() for name in names.split()}

    def find(name: str) -> Any:
        if name in instead:  # not an AttributeError, of whose text `from module import name` says nothing
            raise ImportError(f"{module}.{name} is not there: {instead[name]}")
        raise missing_attribute(module, name)

    vars(sys.modules[module])["__getattr__"] = find


class _Finder:
    """Asked when nobody else has found a module."""

    @staticmethod
    def find_spec(
        fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        text = sentence(fullname)
        if text is not None:
            raise ImportError(text, name=fullname)
        return None


def install() -> None:
    """Once; ``import horovod`` does it."""
    if not any(getattr(finder, "__module__", "") == __name__ for finder in sys.meta_path):
        sys.meta_path.append(_Finder)
