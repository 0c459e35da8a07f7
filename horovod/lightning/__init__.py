"""Lightning 2.x on Horovod: `Trainer(strategy=HorovodStrategy(), devices=1)`, started by horovodrun.

`lightning` and `pytorch_lightning` are two packages with classes of their own. `HorovodStrategy` is for the
one that is imported; `strategy_class()` makes it for a given one. `Trainer(strategy="horovod")` works, too,
once this module has been imported after Lightning.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
from typing import TYPE_CHECKING, Any

from horovod.lightning.metrics import gather_all, ranks_share_metrics

__all__ = ["HorovodStrategy", "gather_all", "ranks_share_metrics", "strategy_class"]

_PACKAGES = ("lightning.pytorch", "pytorch_lightning")


@functools.cache
def strategy_class(package: str) -> Any:
    """The class for the Trainer of a package: "lightning.pytorch" or "pytorch_lightning"."""
    if package not in _PACKAGES:
        raise ValueError(f"package must be one of {', '.join(_PACKAGES)}, got {package!r}")
    from horovod.lightning.strategy import make_strategy_class

    made = make_strategy_class(package)
    registry = importlib.import_module(f"{package}.strategies").StrategyRegistry
    registry.register("horovod", made, description="ranks of horovodrun", override=True)
    return made


def _imported() -> list[str]:
    return [package for package in _PACKAGES if sys.modules.get(package) is not None]


def _package_in_use() -> str:
    imported = _imported()
    if len(imported) == 1:
        return imported[0]
    if imported:
        raise ImportError(
            "both lightning and pytorch_lightning are imported: say whose Trainer it is for, "
            "horovod.lightning.strategy_class('lightning.pytorch') or strategy_class('pytorch_lightning')"
        )
    for package in _PACKAGES:
        if importlib.util.find_spec(package.partition(".")[0]) is not None:
            return package
    raise ImportError("horovod.lightning needs Lightning 2.x: pip install lightning")


if TYPE_CHECKING:
    HorovodStrategy: Any
else:
    for _package in _imported():
        strategy_class(_package)  # makes strategy="horovod" known

    def __getattr__(name: str) -> Any:
        if name == "HorovodStrategy":
            return strategy_class(_package_in_use())
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
