"""The launcher: ``horovodrun``, ``horovod.run`` and the processes that they start."""

from horovod.runner.function import run

__all__ = ["run"]
