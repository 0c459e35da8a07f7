"""``horovod.runner.launch.parse_args``: the command line under names that tools know."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from horovod.common.config import KNOBS
from horovod.runner.cli.flags import FlagParser, destination
from horovod.runner.cli.settings import interfaces

_SAME = [
    "binding_args",
    "check_build",
    "config_file",
    "disable_cache",
    "host_discovery_script",
    "hostfile",
    "hosts",
    "mpi_args",
    "output_filename",
    "reset_limit",
    "ssh_identity_file",
    "ssh_port",
    "verbose",
]
_RENAMED = {  # a tool's name -> ours
    "num_proc": "np",
    "min_num_proc": "min_np",
    "max_num_proc": "max_np",
    "slots": "slots_per_host",
    "use_gloo": "gloo",
    "use_mpi": "mpi",
    "use_jsrun": "jsrun",
    "tcp_flag": "tcp",
    "prefix_output_with_timestamp": "prefix_timestamp",
    "cooldown_range": "blacklist_cooldown_range",
}


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """What a command line of horovodrun says, by default this process's. Exits with 2 if it is
    wrong.

    ``command`` is a list of words. Settings have the name of their flag (``fusion_threshold_mb``)
    and the text that was given, or None; ``nics`` is a set. To start the job use
    ``run_commandline(argv)``.
    """
    parser = FlagParser()
    given, command = parser.parse(sys.argv[1:] if argv is None else argv)
    result = argparse.Namespace(
        command=command, nics=set(filter(None, interfaces(given).split(","))) or None, run_func=None
    )
    for name, ours in [*zip(_SAME, _SAME, strict=True), *_RENAMED.items()]:
        setattr(result, name, getattr(given, ours))
    for knob in KNOBS:
        if knob.flags:
            name = knob.flags[0].lstrip("-").replace("-", "_")
            setattr(result, name, getattr(given, destination(knob)))
    return result
