"""What the user wants: flags, config file and environment together, checked."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from horovod._bootstrap.topology import groups_of
from horovod._net.addresses import is_local
from horovod.common.config import Config, Value, read, without_effect
from horovod.runner import jsrun, kubexec, lsf, mpirun, ssh
from horovod.runner.cli import settings
from horovod.runner.cli.config_file import read_config_file
from horovod.runner.plan.command import resolve
from horovod.runner.plan.hosts import HostInfo, SlotInfo, assign_ranks, parse_hostfile, parse_hosts

_LOOKUPS = 32  # of host names at a time


@dataclass(frozen=True)
class Request:
    """What the user wants, checked."""

    slots: list[SlotInfo]
    command: list[str]
    directory: str
    settings: dict[str, str]
    interfaces: str
    config: Config
    remote: frozenset[str]  # hosts that are not this machine
    pythons: dict[str, str]  # interpreters of hosts that have their own
    ssh: ssh.SshOptions
    mpirun: mpirun.MpirunJob | None  # None: started by our own launcher, or jsrun
    jsrun: jsrun.JsrunJob | None


def understand(args: argparse.Namespace, command: list[str], environ: Mapping[str, str]) -> Request:
    """All of it together. ValueError, OSError or CommandError names what is wrong."""
    from_file: dict[str, Value] = {}
    controller: str | None = None
    if args.config_file is not None:
        from_file, controller = read_config_file(_text_of(args.config_file), args.config_file)
    by_mpirun = settings.uses_mpirun(args, controller)
    by_jsrun = jsrun.wanted(args.jsrun, bool(args.mpi or args.gloo or controller), environ)
    variables = settings.variables(args, from_file, environ)
    other = "mpirun" if by_mpirun else "jsrun" if by_jsrun else ""
    idle = [f"{name} has no effect" for name in without_effect(environ)]
    for note in [*settings.notes(args, from_file, other), *idle]:
        print(f"horovodrun: note: {note}", file=sys.stderr)
    hosts = hosts_of(args)
    slots = assign_ranks(hosts, args.np)
    # Also finds bad inherited values now rather than in each worker.
    config = read({**environ, **variables})
    if config.topology is not None:
        groups_of(config.topology, args.np)
    names = sorted({slot.hostname for slot in slots})
    local = all_local(names)
    remote = frozenset(host for host in names if not local[host])
    if args.ssh_identity_file is not None and not os.path.isfile(args.ssh_identity_file):
        raise ValueError(f"-i {args.ssh_identity_file}: there is no such file")
    directory = os.getcwd()
    # Other machines may have it elsewhere: their agents look for it.
    words = command if remote else resolve(command, directory, environ.get("PATH"))
    ssh_options = ssh.SshOptions(args.ssh_port, args.ssh_identity_file, kubexec.script(environ))
    job = mpirun.MpirunJob(
        size=args.np,
        hosts=hosts,
        command=words,
        env=mpirun.environment(environ, variables, config.env_exclude),
        interfaces=settings.interfaces(args),
        ssh=ssh_options,
        output=args.output_filename,
        timestamps=args.prefix_timestamp,
        tcp=args.tcp,
        mpi_args=args.mpi_args or "",
        binding_args=args.binding_args,
    )
    return Request(
        slots=slots,
        command=words,
        directory=directory,
        settings=variables,
        interfaces=settings.interfaces(args),
        config=config,
        remote=remote,
        pythons={host.hostname: host.python for host in hosts if host.python is not None},
        ssh=ssh_options,
        mpirun=job if by_mpirun else None,
        jsrun=jsrun.JsrunJob(job, slots, lsf.hosts(environ)) if by_jsrun else None,
    )


def all_local(names: Sequence[str]) -> dict[str, bool]:
    """Which of the hosts are this machine."""
    if len(names) == 1:
        return {names[0]: is_local(names[0])}
    from concurrent.futures import ThreadPoolExecutor  # here: most jobs are on one host

    with ThreadPoolExecutor(_LOOKUPS) as pool:  # an answer may take seconds
        return dict(zip(names, pool.map(is_local, names), strict=True))


def hosts_of(args: argparse.Namespace) -> list[HostInfo]:
    """The hosts that flags, or LSF, name; this machine if nobody does."""
    if args.hosts is not None:
        return parse_hosts(args.hosts)
    if args.hostfile is not None:
        return parse_hostfile(_text_of(args.hostfile), args.hostfile)
    if lsf.inside(os.environ):
        return lsf.spread(lsf.hosts(os.environ), args.np)
    return [HostInfo("localhost", args.np)]


def _text_of(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        try:
            return file.read()
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} is not text in UTF-8: {error.reason} at byte {error.start}") from None
