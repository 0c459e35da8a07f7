"""Distributed training: the same script on many processes and machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from horovod import _absent

if TYPE_CHECKING:
    from horovod.runner.function import run as run

__version__ = "1.0.0.dev0"

_absent.install()

if not TYPE_CHECKING:  # type checkers find a misspelt name by themselves

    def __getattr__(name: str) -> Any:
        # Only the one who wants to launch pays for the launcher.
        if name == "run":
            from horovod.runner.function import run

            return run
        raise _absent.missing_attribute(__name__, name)
