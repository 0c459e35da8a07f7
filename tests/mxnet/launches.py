"""In an environment of its own: `make test-mxnet`."""

import importlib.util

from check_launch import Launch

_found = importlib.util.find_spec("mxnet")
# Not this directory, which could be taken for a package of that name.
THERE = _found is not None and _found.origin is not None
SKIP = "" if THERE else "MXNet needs an environment of its own: make test-mxnet"


def mxnet(name: str, np: int, checks: str, **environment: str) -> Launch:
    variables = {"HOROVOD_DYNAMIC_PROCESS_SETS": "1", "OMP_NUM_THREADS": "1", **environment}
    return Launch(f"{name}-{np}", np, [checks], variables, timeout=240, skip=SKIP)


LAUNCHES = [
    mxnet("mxnet", 2, "checks_mxnet.py"),
    mxnet("mxnet", 3, "checks_mxnet.py"),
    mxnet("mxnet-conformance", 2, "../conformance/checks_conformance.py", CHECK_ADAPTER="mxnet"),
]
