"""``horovod.run``: a function instead of a command."""

from horovod.runner.function.run_function import run

__all__ = ["run"]
