"""``horovod.runner.launch.parse_args``: the command line under the names that tools know its parts by."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from horovod.common.config import KNOBS
from horovod.runner import flags

_SAME = (
    "binding_args",
    "check_build",
    "config_file",
    "disable_cache",
    "elastic_timeout",
    "host_discovery_script",
    "hostfile",
    "hosts",
    "mpi_args",
    "output_filename",
    "reset_limit",
    "ssh_identity_file",
    "ssh_port",
    "verbose",
)


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """What a command line of horovodrun says, by default this process's. Exits with 2 if it is wrong.

    ``command`` is a list of words. Settings have the name of their flag (``fusion_threshold_mb``) and the
    text that was given, or None; ``nics`` is a set. To start the job use ``run_commandline(argv)``.
    """
    parser = flags.FlagParser()
    given, command = parser.parse(sys.argv[1:] if argv is None else argv)
    result = argparse.Namespace(
        command=command,
        num_proc=given.np,
        min_num_proc=given.min_np,
        max_num_proc=given.max_np,
        slots=given.slots_per_host,
        use_gloo=given.gloo,
        use_mpi=given.mpi,
        use_jsrun=given.jsrun,
        nics=set(filter(None, flags.interfaces(given).split(","))) or None,
        tcp_flag=given.tcp,
        prefix_output_with_timestamp=given.prefix_timestamp,
        cooldown_range=given.blacklist_cooldown_range,
        run_func=None,
    )
    for name in _SAME:
        setattr(result, name, getattr(given, name))
    for knob in KNOBS:
        if knob.flags:
            name = knob.flags[0].lstrip("-").replace("-", "_")
            setattr(result, name, getattr(given, flags.destination(knob)))
    return result
