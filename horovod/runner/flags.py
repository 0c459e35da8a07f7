"""The flags and the config file of ``horovodrun``. The tunables among them come from the table of knobs."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from horovod import __version__
from horovod.common.config import KNOBS, Knob, Value

_PREFIX = "knob_"

# Flags that are understood but whose feature does not exist yet: destination -> what it would need.
_NOT_YET = {
    "min_np": "elastic jobs (--min-np)",
    "max_np": "elastic jobs (--max-np)",
    "slots_per_host": "elastic jobs (--slots-per-host)",
    "elastic_timeout": "elastic jobs (--elastic-timeout)",
    "reset_limit": "elastic jobs (--reset-limit)",
    "blacklist_cooldown_range": "elastic jobs (--blacklist-cooldown-range)",
    "host_discovery_script": "elastic jobs (--host-discovery-script)",
}
_ONLY_MPI = {"mpi_args": "--mpi-args", "binding_args": "--binding-args"}


class FlagParser:
    """An argument parser that stops at the first word which is not a flag: that is the user's command."""

    def __init__(self) -> None:
        self._parser = argparse.ArgumentParser(
            prog="horovodrun",
            usage="horovodrun -np N [flags] command [arguments]",
            description="Starts the same command as several processes that train together.",
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
        # argparse itself would look at the command's own flags, and fail on those that resemble ours.
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
            type=_positive,
            metavar="N",
            help="number of processes",
        )
        self._add(
            group, "-cb", "--check-build", action="store_true", help="show what this installation can do"
        )
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
            type=_seconds,
            default=3.0,
            metavar="S",
            help="seconds that the other ranks get to end by themselves when one has failed (default 3)",
        )
        self._add(group, "--dry-run", action="store_true", help="show what would be started, and where")
        self._add(group, "--verbose", action="store_true", help="say what is being done")
        self._add(group, "--disable-cache", action="store_true", help="accepted; nothing is cached")

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
            metavar="FILE",
            help="elastic: prints the hosts (not supported yet)",
        )
        self._add(group, "-p", "--ssh-port", type=int, metavar="N", help="ssh port of all hosts")
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
        text = (knob.doc + (" No effect." if knob.no_effect else "")).replace("%", "%%")
        if knob.kind is not bool:
            self._add(group, *knob.flags, dest=dest, metavar="X", help=f"{text} Allowed: {knob.allowed()}.")
            return
        either = group.add_mutually_exclusive_group()
        for flag in (*knob.flags, *knob.off_flags):
            hidden = flag in knob.hidden_flags or flag in knob.deprecated_flags
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
        group = self._parser.add_argument_group("elastic jobs (not supported yet)")
        self._add(
            group,
            "--min-np",
            "--min-num-proc",
            dest="min_np",
            type=_positive,
            metavar="N",
            help="least processes",
        )
        self._add(
            group,
            "--max-np",
            "--max-num-proc",
            dest="max_np",
            type=_positive,
            metavar="N",
            help="most processes",
        )
        self._add(
            group, "--slots-per-host", type=_positive, metavar="N", help="slots of hosts without a number"
        )
        self._add(group, "--elastic-timeout", type=_seconds, metavar="S", help="wait for enough slots")
        self._add(group, "--reset-limit", type=int, metavar="N", help="most changes of membership")
        self._add(
            group,
            "--blacklist-cooldown-range",
            type=int,
            nargs=2,
            metavar=("MIN", "MAX"),
            help="seconds off for a host",
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


def _positive(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not valid: it must be an integer >= 1")
    return number


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < 1e9:
        raise argparse.ArgumentTypeError(f"{text} is not valid: it must be a number of seconds >= 0")
    return number


def read_config_file(text: str, source: str) -> tuple[dict[str, Value], str | None]:
    """The knobs in a YAML config file, by field name, and its controller. ValueError names what is wrong."""
    import yaml

    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"{source} is not valid YAML: {error}") from None
    if data is None:
        return {}, None
    if not isinstance(data, dict):
        raise ValueError(f"{source} must consist of sections such as 'params:'")
    controller = data.pop("controller", None)
    controller = controller.lower() if isinstance(controller, str) else controller
    if controller not in (None, "gloo", "mpi"):
        raise ValueError(f"{source}: controller: {controller!r} is not valid: it must be gloo or mpi")
    known = {(knob.section, knob.key): knob for knob in KNOBS if knob.key}
    sections = list(dict.fromkeys(section for section, _ in known))
    values: dict[str, Value] = {}
    for section, entries in data.items():
        if section not in sections:
            raise ValueError(
                f"{source}: unknown section {section!r}: the sections are controller, {_list(sections)}"
            )
        if entries is not None and not isinstance(entries, dict):
            raise ValueError(f"{source}: section {section!r} must contain 'key: value' lines")
        for key, value in (entries or {}).items():
            knob = known.get((section, key))
            if knob is None:
                keys = _list(key for other, key in known if other == section)
                raise ValueError(f"{source}: unknown key {key!r} in section {section!r}: the keys are {keys}")
            if value is not None:
                parsed = _in_units(knob, _yaml_text(value), f"{source}: {section}: {key}")
                values[knob.name] = not parsed if knob.inverted else parsed
    return values, controller


def settings(
    args: argparse.Namespace, from_file: Mapping[str, Value], environ: Mapping[str, str]
) -> dict[str, str]:
    """The variables that flags and config file set in every worker. ValueError names a bad flag."""
    values: dict[str, Value] = dict(from_file)
    for knob in KNOBS:
        text = getattr(args, destination(knob), None)
        if text is not None:
            values[knob.name] = _in_units(knob, text, knob.flags[0])
    by_name = {knob.name: knob for knob in KNOBS}
    result = {
        knob.env: knob.text(values[knob.name])
        for knob in KNOBS
        if knob.name in values and (not knob.requires or _is_on(by_name[knob.requires], values, environ))
    }
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
    """Whether mpirun is to start the job; ``controller`` is the config file's, which a flag beats."""
    return bool(args.mpi or (controller == "mpi" and not args.gloo and not args.jsrun))


def not_supported(args: argparse.Namespace) -> str | None:
    """What was asked for that this version cannot do, in words."""
    return next((text for dest, text in _NOT_YET.items() if getattr(args, dest) is not None), None)


def without_effect(args: argparse.Namespace, from_file: Mapping[str, Value], mpirun: bool) -> list[str]:
    """Names of the given flags and keys that do nothing in this engine, or with (without) mpirun."""
    names = [flag for dest, flag in _ONLY_MPI.items() if getattr(args, dest) is not None and not mpirun]
    for knob in KNOBS:
        if knob.no_effect and getattr(args, destination(knob), None) is not None:
            names.append(knob.flags[0])
        elif knob.no_effect and knob.name in from_file:
            names.append(f"{knob.section}: {knob.key}")
    return names


def _is_on(knob: Knob, values: Mapping[str, Value], environ: Mapping[str, str]) -> bool:
    if knob.name in values:
        return bool(values[knob.name])
    text = environ.get(knob.env, "")
    return bool(text and knob.parse(text))


def _in_units(knob: Knob, text: str, source: str) -> Value:
    value = knob.parse(text, source)
    if knob.scale != 1 and isinstance(value, int):
        return value * knob.scale
    return value


def _yaml_text(value: object) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value)


def _list(names: Iterable[str]) -> str:
    return ", ".join(names)
