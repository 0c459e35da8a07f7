"""Every public name says what it is: help() and the API reference are made of this."""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any

import pytest
from util_packages import needs
from util_paths import ROOT

MODULES = {
    "horovod": None,
    "horovod.numpy": None,
    "horovod.torch": "torch",
    "horovod.torch.mpi_ops": "torch",
    "horovod.tensorflow": "tensorflow",
    "horovod.tensorflow.mpi_ops": "tensorflow",
    "horovod.tensorflow.keras": "tensorflow",
    "horovod.tensorflow.keras.callbacks": "tensorflow",
    "horovod.keras": "keras",
    "horovod.jax": "jax",
    "horovod.lightning": "lightning.pytorch",
    "horovod.mxnet": "mxnet.base",  # tests/mxnet could be taken for a package
    "horovod.keras.callbacks": "keras",
    "horovod.common.elastic": None,
    "horovod.numpy.elastic": None,
    "horovod.torch.elastic": "torch",
    "horovod.torch.elastic.sampler": "torch",
    "horovod.torch.elastic.state": "torch",
    "horovod.tensorflow.elastic": "tensorflow",
    "horovod.tensorflow.keras.elastic": "tensorflow",
    "horovod.keras.elastic": "keras",
    "horovod.jax.elastic": "jax",
    "horovod.data": None,
    "horovod.runner": None,
    "horovod.common.basics": None,
    "horovod.common.exceptions": None,
    "horovod.common.process_sets": None,
}

# Those that have a page.
REFERENCE = [
    "horovod.numpy",
    "horovod.torch",
    "horovod.tensorflow",
    "horovod.tensorflow.keras",
    "horovod.keras",
    "horovod.keras.callbacks",
    "horovod.jax",
    "horovod.mxnet.ops",
    "horovod.mxnet.functions",
    "horovod.mxnet.optimizer",
    "horovod.mxnet.compression",
    "horovod.lightning",
    "horovod.runner",
]


def public(module: Any) -> list[str]:
    """What `from module import *` gives, or would give if other modules' names were left out."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]


def described(value: Any) -> bool:
    """Whether a function or class has a text of its own, or that of what it overrides."""
    text = inspect.getdoc(value)
    if inspect.isclass(value):  # not that of a class of Python's or a framework's
        text = next((base.__doc__ for base in value.__mro__ if base.__module__.startswith("horovod")), None)
    return bool(text and text.strip() and not text.startswith(f"{getattr(value, '__name__', '')}("))


def undescribed_members(owner: type) -> list[str]:
    """Methods and properties that are defined in this package and have no text."""
    missing = []
    for base in owner.__mro__:
        if not base.__module__.startswith("horovod"):
            continue
        for name, member in vars(base).items():
            callable_ = isinstance(member, staticmethod | classmethod | property) or inspect.isfunction(
                member
            )
            # Or the text of what it overrides, which getdoc() does not find for classes made in functions.
            texts = (inspect.getdoc(getattr(each, name, None)) for each in owner.__mro__[:-1])
            if callable_ and not name.startswith("_") and not any(texts):
                missing.append(f"{base.__qualname__}.{name}")
    return missing


@pytest.mark.parametrize("name", MODULES)
def test_public_names_have_a_docstring(name: str) -> None:
    framework = MODULES[name]
    if framework is not None:
        needs(framework)
    module = importlib.import_module(name)
    assert module.__doc__
    missing = []
    for each in public(module):
        value = getattr(module, each)
        if inspect.isclass(value):
            missing += undescribed_members(value)
        if (callable(value) or inspect.ismodule(value)) and not described(value):
            missing.append(each)
    assert not missing


@pytest.mark.parametrize(("name", "framework"), [("horovod.numpy", "numpy"), ("horovod.torch", "torch")])
def test_help_shows_signature_and_text(name: str, framework: str) -> None:
    needs(framework)
    allreduce = importlib.import_module(name).allreduce
    parameters = list(inspect.signature(allreduce).parameters)
    assert parameters[:4] == ["tensor", "average", "name", "compression"]
    assert inspect.signature(allreduce).return_annotation == "Tensor"
    assert "combined element by element" in (inspect.getdoc(allreduce) or "")


def test_reference_has_the_arguments_of_the_lightning_strategy() -> None:
    """Its class is made for each package, so that its page is not."""
    needs("lightning.pytorch")
    made = importlib.import_module("horovod.lightning").strategy_class("lightning.pytorch")
    shown = re.search(
        r"HorovodStrategy\((.*?)\n\)", (ROOT / "docs" / "api" / "lightning.md").read_text(), re.S
    )
    assert shown is not None
    names = re.findall(r"^    (\w+)=", shown[1], re.M)
    assert names == list(inspect.signature(made).parameters)


def test_reference_has_every_module() -> None:
    pages = "".join(page.read_text() for page in (ROOT / "docs" / "api").glob("*.md"))
    for module in REFERENCE:
        assert f"::: {module}\n" in pages, module
