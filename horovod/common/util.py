"""Small helpers, many of them imported by user code under these names."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from horovod import _absent

_absent.without_names(__name__)
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_PROBE_SECONDS = 120
_GPU_PROBES = {
    "torch": "import torch; assert torch.cuda.is_available()",
    "tensorflow": "import tensorflow as tf; assert tf.config.list_physical_devices('GPU')",
}


def _cache(function: F) -> F:
    """Remembers results by arguments: an answer is looked for only once."""
    results: dict[Any, Any] = {}

    @functools.wraps(function)
    def cached(*args: Any, **kwargs: Any) -> Any:
        key = (args, tuple(sorted(kwargs.items())))
        if key not in results:
            results[key] = function(*args, **kwargs)
        return results[key]

    return cached  # type: ignore[return-value]


def warn_deprecated(text: str) -> None:
    """A DeprecationWarning at the line of the first caller outside of this package."""
    import inspect  # here: warnings are rare
    import warnings

    depth, frame = 1, inspect.currentframe()
    # Functions that torch.compile() leaves alone are called through the compiler.
    while frame and frame.f_globals.get("__name__", "").startswith(("horovod.", "torch._dynamo.")):
        depth, frame = depth + 1, frame.f_back
    warnings.warn(text, DeprecationWarning, stacklevel=depth)


def gloo_built(verbose: bool = False) -> bool:
    """The engine without MPI, which stands in Gloo's place, is always there."""
    return True


def _installed(module: str) -> bool:
    import importlib.util  # here, as all that only these questions need: they are asked seldom

    return importlib.util.find_spec(module) is not None


@_cache
def mpi_built(verbose: bool = False) -> bool:
    """Whether MPI can be used: mpi4py and an MPI library are there. Does not initialise MPI."""
    if not _installed("mpi4py"):
        if verbose:
            print("mpi4py is not installed.")
        return False
    return "mpi4py.MPI" in sys.modules or _succeeds(
        "import mpi4py; mpi4py.rc.initialize = False; import mpi4py.MPI", verbose
    )


def nccl_built(verbose: bool = False) -> bool:
    """Whether NCCL can be used."""
    return False


def ddl_built(verbose: bool = False) -> bool:
    """Whether IBM's DDL can be used."""
    return False


def ccl_built(verbose: bool = False) -> bool:
    """Whether oneCCL can be used."""
    return False


@_cache
def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether `horovod.<name>` can be imported; tried in
    another process, so not imported in this one."""
    module = f"horovod.{ext_base_name}"
    if not (_installed(ext_base_name) and _installed(module)):
        if verbose:
            print(f"{ext_base_name} or {module} is not installed.")
        return False
    return _succeeds(f"import {module}", verbose)


@_cache
def gpu_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether the framework sees a GPU."""
    probe = _GPU_PROBES.get(ext_base_name)
    if probe is None or not _installed(ext_base_name):
        return False
    return _succeeds(probe, verbose)


def _succeeds(code: str, verbose: bool) -> bool:
    import subprocess

    try:
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        if verbose:
            print(f"`{code}` did not end within {_PROBE_SECONDS} s.")
        return False
    if done.returncode != 0 and verbose:
        print(f"`{code}` failed:\n{done.stderr}")
    return done.returncode == 0


def check_extension(
    ext_name: str, ext_env_var: str | None = None, pkg_path: str | None = None, *args: str
) -> None:
    """ImportError if the native library, which serves every framework, is missing."""
    library = os.path.join(os.path.dirname(os.path.dirname(__file__)), "libhorovod.so")
    if not os.path.exists(library):
        raise ImportError(f"{ext_name} needs {library}, which is missing; reinstall horovod")


def support_non_legacy_keras_optimizers(keras: object = None) -> bool:
    """Optimizers of today's Keras can be distributed."""
    return True


def get_average_backwards_compatibility_fun(reduce_ops: object) -> Callable[[int | None, bool | None], int]:
    """What makes one reduction of the arguments `op` and `average`."""
    from horovod.common.collectives import reduce_op  # which imports this module

    return reduce_op


@contextlib.contextmanager
def env(**kwargs: str | None) -> Iterator[None]:
    """Sets environment variables (None: leaves it as it is) and restores them at the end."""
    given = {name: value for name, value in kwargs.items() if value is not None}
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def split_list(values: Sequence[T], parts: int) -> list[Sequence[T]]:
    """`parts` consecutive slices of nearly equal length, the longer ones first."""
    short, longer = divmod(len(values), parts)
    ends = [short * (i + 1) + min(i + 1, longer) for i in range(parts)]
    return [values[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def is_iterable(value: object) -> bool:
    """Whether `iter(value)` works."""
    try:
        iter(value)  # type: ignore[call-overload]
    except TypeError:
        return False
    return True


def num_rank_is_power_2(num_rank: int) -> bool:
    """Whether a number of ranks is 1, 2, 4, 8 ..."""
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def is_version_greater_equal_than(ver: str, target: str) -> bool:
    """Whether version `ver` is at least `target`, which must have the form x.y.z."""
    if not isinstance(ver, str) or not isinstance(target, str):
        raise ValueError(f"versions must be strings, got {ver!r} and {target!r}")
    parts = target.split(".")
    if len(parts) != 3 or not all(part.isdigit() for part in parts):
        raise ValueError(f"the target version must have the form x.y.z, got {target!r}")
    return _leading_numbers(ver) >= tuple(int(part) for part in parts)


def _leading_numbers(version: str) -> tuple[int, int, int]:
    numbers = [0, 0, 0]
    for index, part in enumerate(version.split("+")[0].split(".")[:3]):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers[index] = int(digits)
        if digits != part:  # 1.0rc1: what follows is not a number of the version
            break
    return numbers[0], numbers[1], numbers[2]
