"""MXNet itself, or what is to be done to have it."""

from __future__ import annotations

import numpy as np

_REMEDY = "in an environment of its own with Python 3.10 or 3.11: pip install mxnet==1.9.1 'numpy<1.24'"

try:
    import mxnet as mx
except ModuleNotFoundError as error:
    if error.name != "mxnet":
        raise
    raise ImportError(f"horovod.mxnet needs MXNet, {_REMEDY}") from error
except Exception as error:  # the last version says numpy < 2, but uses what numpy 1.24 has no more
    _why = (str(error) or type(error).__name__).splitlines()[0]  # numpy has much to say
    raise ImportError(
        f"MXNet can't be imported with numpy {np.__version__} ({_why}): it needs numpy<1.24, {_REMEDY}"
    ) from error

__all__ = ["mx"]
