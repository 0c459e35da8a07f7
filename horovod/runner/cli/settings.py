"""From flags and config file to the workers' variables and the launcher that is wanted."""

from __future__ import annotations

import argparse
import os
import shlex
import warnings
from collections.abc import Mapping

from horovod.common.config import KNOBS, Knob, Value
from horovod.runner.cli.flags import destination

# What needs a launcher that stays.
_ONLY_OURS = {
    "dashboard": "--dashboard",
    "dashboard_address": "--dashboard-address",
    "event_log": "--event-log",
    "report": "--report",
}
_ONLY_MPI = {"mpi_args": "--mpi-args", "binding_args": "--binding-args"}


def variables(
    args: argparse.Namespace, from_file: Mapping[str, Value], environ: Mapping[str, str]
) -> dict[str, str]:
    """The variables that flags and config file set in every worker. ValueError names a bad flag."""
    values: dict[str, Value] = dict(from_file)
    for knob in KNOBS:
        text = getattr(args, destination(knob), None)
        if text is not None:
            values[knob.name] = in_units(knob, text, knob.flags[0])
    by_name = {knob.name: knob for knob in KNOBS}
    result = {
        knob.env: knob.text(values[knob.name])
        for knob in KNOBS
        if knob.name in values and (not knob.requires or _is_on(by_name[knob.requires], values, environ))
    }
    if args.timeline is not None:
        if "HOROVOD_TIMELINE" in result:
            raise ValueError("--timeline and --timeline-filename (or timeline: filename): give one of them")
        result |= {"HOROVOD_TIMELINE": os.path.abspath(args.timeline), "HOROVOD_TIMELINE_RANKS": "all"}
    if args.tcp:
        result["NCCL_IB_DISABLE"] = "1"
    return result


def interfaces(args: argparse.Namespace) -> str:
    """The comma list of network interfaces, without repetition; empty if none was given."""
    words = [*(args.network_interface or []), args.network_interfaces or ""]
    if any("," in word for word in args.network_interface or []):
        text = "a list in --network-interface is deprecated; use --network-interfaces"
        warnings.warn(text, DeprecationWarning, stacklevel=2)
    return ",".join(dict.fromkeys(name.strip() for word in words for name in word.split(",") if name.strip()))


def uses_mpirun(args: argparse.Namespace, controller: str | None) -> bool:
    """Whether mpirun is to start the job. A flag beats the config file's ``controller``."""
    return bool(args.mpi or (controller == "mpi" and not args.gloo and not args.jsrun))


def notes(args: argparse.Namespace, from_file: Mapping[str, Value], other: str = "") -> list[str]:
    """What the user is told of flags and keys that do nothing in this engine, or when an ``other``
    program, mpirun or jsrun, starts the ranks, or when none does."""
    names = [flag for dest, flag in _ONLY_MPI.items() if getattr(args, dest) is not None and not other]
    for knob in KNOBS:
        if knob.no_effect and getattr(args, destination(knob), None) is not None:
            names.append(knob.flags[0])
        elif knob.no_effect and knob.name in from_file:
            names.append(f"{knob.section}: {knob.key}")
    told = [f"{name} has no effect" for name in names]
    if other:
        ours = [flag for dest, flag in _ONLY_OURS.items() if getattr(args, dest)]
        told += [f"{flag} has no effect with {other}" for flag in ours]
        if args.timeline is not None:
            file = shlex.quote(args.timeline)
            merge = f"python -m horovod.timeline merge {file} -o {file}"
            told.append(f"{other} leaves the ranks' parts of the timeline: join them with {merge}")
    return told


def _is_on(knob: Knob, values: Mapping[str, Value], environ: Mapping[str, str]) -> bool:
    if knob.name in values:
        return bool(values[knob.name])
    text = environ.get(knob.env, "")
    return bool(text and knob.of_variable(text)[0])


def in_units(knob: Knob, text: str, source: str) -> Value:
    """The value of a knob; flags and files may count in other units than the variable."""
    value = knob.parse(text, source)
    if knob.scale != 1 and isinstance(value, int):
        return value * knob.scale
    return value
