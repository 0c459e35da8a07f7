"""The flags of ``horovodrun``. The tunables among them come from the table of knobs."""

from __future__ import annotations

import argparse
import shutil
import textwrap
import warnings
from collections.abc import Sequence
from typing import Any

from horovod import __version__
from horovod.common.config import KNOBS, Knob
from horovod.runner.cli.values import count, port, positive, seconds

_PREFIX = "knob_"

# What makes a job elastic, and what only such a job understands: flag -> destination.
ELASTIC_SWITCHES = {"--min-np": "min_np", "--host-discovery-script": "host_discovery_script"}
ELASTIC_ONLY = {
    "--max-np": "max_np",
    "--slots-per-host": "slots_per_host",
    "--reset-limit": "reset_limit",
    "--blacklist-cooldown-range": "blacklist_cooldown_range",
    "--failures-before-blacklist": "failures_before_blacklist",
    "--preemption-grace": "preemption_grace",
    "--events-file": "events_file",
    "--commit-dir": "commit_dir",
}


class FlagParser:
    """An argument parser that stops at the user's command, the first word which is not a flag."""

    def __init__(self) -> None:
        self._parser = argparse.ArgumentParser(
            prog="horovodrun",
            usage="horovodrun -np N [flags] command [arguments]",
            description="Starts the same command as several processes that train together.",
            epilog=_epilog(),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        self._actions: dict[str, argparse.Action] = {}
        self._add_general()
        self._add_hosts()
        self._add_knobs()
        self._add_elastic()
        self._add_mpi()

    def parse(self, argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
        """The flags and the command. Exits with 2 and a message if a flag is wrong."""
        end = self._command_index(argv)
        command = list(argv[end:])
        if command[:1] == ["--"]:
            del command[0]
        return self._parser.parse_args(list(argv[:end])), command

    def error(self, text: str) -> None:
        """Prints usage and ``text``, exits with 2."""
        self._parser.error(text)

    def _command_index(self, argv: Sequence[str]) -> int:
        # argparse itself would look at the command's own flags, and fail on those that resemble
        # ours.
        index = 0
        while index < len(argv) and argv[index].startswith("-") and argv[index] not in ("-", "--"):
            name, equals, _ = argv[index].partition("=")
            action = self._find(name)
            index += 1
            if action is not None and not equals:
                index += 1 if action.nargs is None else int(action.nargs)
        return min(index, len(argv))

    def _find(self, name: str) -> argparse.Action | None:
        if name in self._actions or not name.startswith("--"):
            return self._actions.get(name)
        found = {id(action): action for flag, action in self._actions.items() if flag.startswith(name)}
        return next(iter(found.values())) if len(found) == 1 else None

    def _add(self, group: argparse._ActionsContainer, *flags: str, **rest: Any) -> None:
        action = group.add_argument(*flags, **rest)
        for flag in flags:
            self._actions[flag] = action

    def _add_general(self) -> None:
        group = self._parser.add_argument_group("general")
        self._add(group, "-v", "--version", action="version", version=__version__)
        self._add(
            group,
            "-np",
            "-n",
            "--num-proc",
            dest="np",
            type=positive,
            metavar="N",
            help="number of processes",
        )
        for flags, what in (
            (("-cb", "--check-build"), "show what this installation can do"),
            (("--doctor",), "examine this machine, or those of -H, for what makes jobs slow or fail"),
            (("--jobs",), "list the last jobs of this user here"),
            (("--top",), "watch the running job; a JOB of --jobs may follow"),
            (("--stack-dump",), "show where every rank of the running job is; a JOB of --jobs may follow"),
        ):
            self._add(group, *flags, action="store_true", help=what)
        self._add(group, "--config-file", metavar="FILE", help="YAML file with settings; flags beat it")
        self._add(
            group,
            "--output-filename",
            metavar="DIR",
            help="also write DIR/rank.<n>/stdout and DIR/rank.<n>/stderr",
        )
        self._add(
            group,
            "-prefix-timestamp",
            "--prefix-output-with-timestamp",
            dest="prefix_timestamp",
            action="store_true",
            help="put the time in front of each line of output",
        )
        self._add(
            group,
            "--grace-period",
            type=seconds,
            default=3.0,
            metavar="S",
            help="seconds that the other ranks get to end by themselves when one has failed (default 3)",
        )
        self._add(
            group, "--event-log", metavar="FILE", help="also write the job's events there, as JSON lines"
        )
        self._add(
            group, "--timeline", metavar="FILE", help="record all ranks, merge them into FILE, and explain it"
        )
        self._add(group, "--dashboard", action="store_true", help="show the job in a browser of this machine")
        self._add(
            group, "--dashboard-address", metavar="A:P", help="the same, at another address than 127.0.0.1"
        )
        self._add(
            group, "--report", metavar="FILE", help="write the same page with its data when the job ends"
        )
        self._add(group, "--no-event-log", action="store_true", help="keep no record of the job")
        self._add(group, "--dry-run", action="store_true", help="show what would be started, and where")
        self._add(group, "--verbose", action="store_true", help="say what is being done")
        self._add(group, "--disable-cache", action="store_true", help=argparse.SUPPRESS)

    def _add_hosts(self) -> None:
        group = self._parser.add_argument_group("hosts")
        where = group.add_mutually_exclusive_group()
        self._add(
            where, "-H", "--hosts", metavar="NAME:SLOTS,...", help="hosts and their numbers of processes"
        )
        self._add(where, "-hostfile", "--hostfile", metavar="FILE", help="one host per line: name slots=N")
        self._add(
            where,
            "--host-discovery-script",
            metavar="CMD",
            help="elastic job: a command that prints the hosts of the moment, one host:slots per line",
        )
        self._add(group, "-p", "--ssh-port", type=port, metavar="N", help="ssh port of all hosts")
        self._add(group, "-i", "--ssh-identity-file", metavar="FILE", help="private key for ssh")
        self._add(group, "--network-interfaces", metavar="A,B", help="network interfaces to use")
        self._add(
            group, "--network-interface", action="append", metavar="A", help="one of them; may be repeated"
        )
        controller = group.add_mutually_exclusive_group()
        self._add(controller, "--gloo", action="store_true", help="use the engine's own launcher (default)")
        self._add(controller, "--mpi", action="store_true", help="start with mpirun; MPI then moves the data")
        self._add(controller, "--jsrun", action="store_true", help="start with jsrun, in a job of LSF")

    def _add_knobs(self) -> None:
        for title in dict.fromkeys(knob.group for knob in KNOBS if knob.flags):
            group = self._parser.add_argument_group(f"settings: {title.lower()}")
            for knob in KNOBS:
                if knob.group == title and knob.flags:
                    self._add_knob(group, knob)

    def _add_knob(self, group: argparse._ArgumentGroup, knob: Knob) -> None:
        dest = destination(knob)
        text = knob.doc.replace("%", "%%")
        if knob.kind is not bool:
            shown = argparse.SUPPRESS if knob.no_effect else f"{text} Allowed: {knob.allowed()}."
            self._add(group, *knob.flags, dest=dest, metavar="X", help=shown)
            return
        either = group.add_mutually_exclusive_group()
        for flag in (*knob.flags, *knob.off_flags):
            hidden = knob.no_effect or flag in knob.hidden_flags or flag in knob.deprecated_flags
            shown = text if flag in knob.flags else f"Opposite of {knob.flags[0]}."
            const = "1" if flag in knob.flags else "0"
            action = _Deprecated if flag in knob.deprecated_flags else "store_const"
            self._add(
                either,
                flag,
                dest=dest,
                action=action,
                const=const,
                help=argparse.SUPPRESS if hidden else shown,
            )

    def _add_elastic(self) -> None:
        group = self._parser.add_argument_group(
            "elastic jobs", "--min-np or --host-discovery-script makes a job elastic: ranks may come and go."
        )
        self._add(
            group,
            "--min-np",
            "--min-num-proc",
            dest="min_np",
            type=positive,
            metavar="N",
            help="go on with as few processes as this (default -np, the number to start with)",
        )
        self._add(
            group,
            "--max-np",
            "--max-num-proc",
            dest="max_np",
            type=positive,
            metavar="N",
            help="use at most so many processes (default: all slots)",
        )
        self._add(
            group,
            "--slots-per-host",
            type=positive,
            metavar="N",
            help="slots of hosts that the discovery script prints without a number (default 1)",
        )
        self._add(
            group,
            "--reset-limit",
            type=count,
            metavar="N",
            help="end the job after so many changes of its ranks",
        )
        self._add(
            group,
            "--blacklist-cooldown-range",
            type=count,
            nargs=2,
            metavar=("MIN", "MAX"),
            help="seconds after which a host that failed may come back; longer each time (default: never)",
        )
        self._add(
            group,
            "--failures-before-blacklist",
            type=positive,
            metavar="N",
            help="failures of a host's processes after which it is not used any more (default 1)",
        )
        self._add(
            group,
            "--preemption-grace",
            type=seconds,
            metavar="S",
            help="seconds that a host which is taken away gets to leave in order (default 30)",
        )
        self._add(
            group,
            "--commit-dir",
            metavar="DIR",
            help="keep commits in a directory that all hosts share, and go on from the last one if nobody "
            "who has the state is left",
        )
        self._add(
            group, "--events-file", metavar="FILE", help="append a line of JSON for each change of the ranks"
        )

    def _add_mpi(self) -> None:
        group = self._parser.add_argument_group("mpirun")
        self._add(
            group, "--mpi-args", metavar="ARGS", help='further words for mpirun; write --mpi-args="..."'
        )
        self._add(group, "--binding-args", metavar="ARGS", help='process binding; write --binding-args="..."')
        self._add(group, "--tcp", action="store_true", help="no InfiniBand")


class _Deprecated(argparse.Action):
    """store_const with a warning."""

    def __init__(self, option_strings: Sequence[str], dest: str, const: str, help: str | None = None) -> None:
        super().__init__(option_strings, dest, nargs=0, const=const, help=help)

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        text = f"{option_string} is deprecated; use --log-without-timestamp or --log-with-timestamp"
        warnings.warn(text, DeprecationWarning, stacklevel=2)
        setattr(namespace, self.dest, self.const)


def destination(knob: Knob) -> str:
    """The attribute of the parsed flags that has the knob's text."""
    return _PREFIX + knob.name


def _epilog() -> str:
    """A line each for the flags that do nothing: --help is about the others."""
    idle = ["--disable-cache", *(knob.flags[0] for knob in KNOBS if knob.no_effect and knob.flags)]
    text = f"Accepted, but without effect in this engine: {', '.join(idle)}"
    return textwrap.fill(text, shutil.get_terminal_size().columns - 2, break_on_hyphens=False)
