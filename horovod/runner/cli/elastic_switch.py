"""Whether a job is to be elastic. Apart from the rest, which other jobs need not load."""

from __future__ import annotations

import argparse

from horovod.runner.cli.config_file import read_elastic_section
from horovod.runner.cli.flags import ELASTIC_ONLY, ELASTIC_SWITCHES
from horovod.runner.cli.values import count, positive


def complete(args: argparse.Namespace) -> None:
    """Adds what the config file says about elastic jobs to flags that were not given."""
    if args.config_file is None:
        return
    with open(args.config_file, encoding="utf-8") as file:
        text = file.read()
    types = {"min_np": positive, "max_np": positive, "slots_per_host": positive, "reset_limit": count}
    for name, value in read_elastic_section(text, args.config_file).items():
        if getattr(args, name) is not None:
            continue
        try:
            if name == "blacklist_cooldown_range":
                setattr(args, name, [count(word) for word in value.split(",")])
            else:
                setattr(args, name, types[name](value) if name in types else value)
        except argparse.ArgumentTypeError as error:
            raise ValueError(f"{args.config_file}: elastic: {name}: {error}") from None


def wanted(args: argparse.Namespace) -> bool:
    """Whether the job is elastic. ValueError for flags that need such a job."""
    if any(getattr(args, name) is not None for name in ELASTIC_SWITCHES.values()):
        return True
    lonely = next((flag for flag, name in ELASTIC_ONLY.items() if getattr(args, name) is not None), None)
    if lonely is not None:
        raise ValueError(f"{lonely} is for elastic jobs: give --min-np or --host-discovery-script, too")
    return False
