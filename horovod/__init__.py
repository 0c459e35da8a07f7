"""Distributed training: the same script on many processes and machines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from horovod import _absent

if TYPE_CHECKING:
    from horovod.runner.function import run as run

__version__ = "1.0.0.dev0"

_absent.install()

# Only the one who wants to launch pays for the launcher.
_absent.import_later(__name__, run="horovod.runner.function")
