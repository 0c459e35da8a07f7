"""The adapter under test, CHECK_ADAPTER, as `hvd`: with numpy's arrays in place of its own tensors.

A new one is a class here with tensor() and array(), an entry in ADAPTERS, and a launch that names it.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any

import numpy as np
from util_expect import skip
from util_model import BFLOAT16


class Adapter:
    """Names are those of the module; functions take arrays and return arrays."""

    reduces_bool = True
    group_of_handle: type = tuple  # what the handle of a group resolves to
    lacks: frozenset[str] = frozenset()  # names that it has for something else

    def __init__(self, name: str) -> None:
        self._name = name
        self._module = importlib.import_module(f"horovod.{name}")

    def tensor(self, array: Any) -> Any:
        """Its tensor of an array; with the array's memory if it has functions that work in place."""
        return array

    def written(self, tensor: Any, array: Any) -> None:
        """After a function that works in place, for one whose tensors have memory of their own."""

    def array(self, tensor: Any) -> Any:
        return tensor

    def is_tensor(self, value: Any) -> bool:
        return isinstance(value, np.ndarray)

    def __getattr__(self, name: str) -> Any:
        if name in self.lacks or not hasattr(self._module, name):
            skip(f"horovod.{self._name} has no {name}()")
        found = getattr(self._module, name)
        return self._with_arrays(found) if type(found) is type(skip) else found

    def _with_arrays(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            given: list[tuple[Any, Any]] = []  # tensors, and the arrays that they were

            def to(value: Any) -> Any:
                if isinstance(value, list) and value and isinstance(value[0], np.ndarray):
                    return [to(each) for each in value]
                if not isinstance(value, np.ndarray):
                    return value
                given.append((self.tensor(value), value))
                return given[-1][0]

            def back(value: Any) -> Any:
                if type(value) in (list, tuple):
                    return type(value)(back(each) for each in value)
                if not self.is_tensor(value):
                    return value
                own = next((array for tensor, array in given if tensor is value), None)
                return self.array(value) if own is None else own

            result = function(*map(to, args), **{name: to(value) for name, value in kwargs.items()})
            for tensor, array in given if function.__name__.endswith("_") else ():
                self.written(tensor, array)
            return back(result)

        return call


class Torch(Adapter):
    """Its tensors share the memory of arrays."""

    def tensor(self, array: Any) -> Any:
        import torch

        if array.dtype == BFLOAT16:
            return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(array)

    def array(self, tensor: Any) -> Any:
        import torch

        if tensor.dtype == torch.bfloat16:
            return tensor.view(torch.int16).numpy().view(BFLOAT16)
        return tensor.numpy()

    def is_tensor(self, value: Any) -> bool:
        import torch

        return isinstance(value, torch.Tensor)


class TensorFlow(Adapter):
    """Eagerly. In graphs, see the checks of its own."""

    reduces_bool = False
    lacks = frozenset({"broadcast_"})  # is for variables

    def tensor(self, array: Any) -> Any:
        import tensorflow as tf

        return tf.constant(array)

    def array(self, tensor: Any) -> Any:
        return tensor.numpy()

    def is_tensor(self, value: Any) -> bool:
        import tensorflow as tf

        return isinstance(value, tf.Tensor)


class Jax(Adapter):
    """On values, with JAX_ENABLE_X64=1. In programs, see the checks of its own."""

    group_of_handle: type = list  # as it was given

    def tensor(self, array: Any) -> Any:
        import jax.numpy as jnp

        return jnp.asarray(array)

    def array(self, tensor: Any) -> Any:
        return np.asarray(tensor)

    def is_tensor(self, value: Any) -> bool:
        import jax

        return isinstance(value, jax.Array)


class MXNet(Adapter):
    """With the arrays of mx.np, which may be empty or have no dimension."""

    lacks = frozenset({"add_process_set"})  # of the check with bfloat16; it has one of its own

    DTYPES = ("float16", "float32", "float64", "uint8", "int8", "int32", "int64", "bool")

    def __init__(self, name: str) -> None:
        super().__init__(name)
        import mxnet

        self._mx = mxnet
        mxnet.npx.set_np()

    def tensor(self, array: Any) -> Any:
        if array.dtype.name not in self.DTYPES:
            skip(f"MXNet has no {array.dtype.name}")
        return self._mx.np.array(array, dtype=array.dtype)

    def array(self, tensor: Any) -> Any:
        return tensor.asnumpy()

    def is_tensor(self, value: Any) -> bool:
        return isinstance(value, self._mx.nd.NDArray)

    def written(self, tensor: Any, array: Any) -> None:
        array[...] = tensor.asnumpy()


ADAPTERS: dict[str, type[Adapter]] = {
    "numpy": Adapter,
    "torch": Torch,
    "tensorflow": TensorFlow,
    "jax": Jax,
    "mxnet": MXNet,
}
_name = os.environ.get("CHECK_ADAPTER", "numpy")
hvd: Any = ADAPTERS[_name](_name)
