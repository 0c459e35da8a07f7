"""``python -m horovod.runner.launch`` is horovodrun; and the names that tools import from here."""

import sys

from horovod import _absent
from horovod.runner.cli.arguments import parse_args
from horovod.runner.cli.controllers import is_gloo_used, run_controller
from horovod.runner.cli.main import run_commandline

__all__ = ["is_gloo_used", "parse_args", "run_commandline", "run_controller"]

_absent.without_names(__name__)

if __name__ == "__main__":
    sys.exit(run_commandline())
