"""``horovodrun``: the command line."""

from __future__ import annotations

import argparse
import os
import secrets
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from horovod.common.config import Config, Value, read
from horovod.runner import environment, flags
from horovod.runner.check_build import check_build
from horovod.runner.command import CommandError, resolve
from horovod.runner.hosts import HostInfo, SlotInfo, assign_ranks, parse_hostfile, parse_hosts
from horovod.runner.job import JobPlan, run_job
from horovod.runner.network import LOOPBACK, is_local
from horovod.runner.plan import HostPlan, Worker
from horovod.runner.processes import hold_standard_descriptors

USAGE_ERROR = 2


@dataclass(frozen=True)
class _Request:
    """What the user wants, checked."""

    slots: list[SlotInfo]
    command: list[str]
    directory: str
    settings: dict[str, str]
    interfaces: str
    config: Config


def run_commandline(argv: Sequence[str] | None = None) -> int:
    """Entry point of ``horovodrun``; returns the exit code."""
    parser = flags.FlagParser()
    args, command = parser.parse(sys.argv[1:] if argv is None else argv)
    if args.check_build:
        print(check_build(args.verbose))
        return 0
    if args.np is None:
        parser.error("the number of processes is missing: give -np N")
    if not command:
        parser.error("the command is missing: horovodrun -np 2 python train.py")
    try:
        request = _understand(args, command, os.environ)
    except CommandError as error:
        print(f"horovodrun: {error}", file=sys.stderr)
        return error.exit_code
    except (ValueError, OSError) as error:
        print(f"horovodrun: {error}", file=sys.stderr)
        return USAGE_ERROR
    if args.dry_run:
        print(_describe(request, os.environ))
        return 0
    return _launch(args, request)


def _understand(args: argparse.Namespace, command: list[str], environ: Mapping[str, str]) -> _Request:
    from_file: dict[str, Value] = {}
    controller: str | None = None
    if args.config_file is not None:
        with open(args.config_file, encoding="utf-8") as file:
            from_file, controller = flags.read_config_file(file.read(), args.config_file)
    missing = flags.not_supported(args, controller)
    if missing is not None:
        raise ValueError(f"{missing}: not supported yet")
    settings = flags.settings(args, from_file, environ)
    for name in flags.without_effect(args, from_file):
        print(f"horovodrun: note: {name} has no effect", file=sys.stderr)
    slots = assign_ranks(_hosts(args), args.np)
    remote = [host for host in dict.fromkeys(slot.hostname for slot in slots) if not is_local(host)]
    if remote:
        raise ValueError(
            f"host {remote[0]} is not this machine, and other machines are not supported yet: "
            f"use -H localhost:{args.np}, or correct the name"
        )
    directory = os.getcwd()
    return _Request(
        slots=slots,
        command=resolve(command, directory, environ.get("PATH")),
        directory=directory,
        settings=settings,
        interfaces=flags.interfaces(args),
        # Also finds bad inherited values now rather than in each worker.
        config=read({**environ, **settings}),
    )


def _hosts(args: argparse.Namespace) -> list[HostInfo]:
    if args.hosts is not None:
        return parse_hosts(args.hosts)
    if args.hostfile is not None:
        with open(args.hostfile, encoding="utf-8") as file:
            return parse_hostfile(file.read(), args.hostfile)
    return [HostInfo("localhost", args.np)]


def _host_plans(request: _Request, env: dict[str, str]) -> list[HostPlan]:
    return [
        HostPlan(
            host=host,
            directory=request.directory,
            command=request.command,
            env=env,
            workers=[
                Worker(slot.rank, slot.environment()) for slot in request.slots if slot.hostname == host
            ],
        )
        for host in dict.fromkeys(slot.hostname for slot in request.slots)
    ]


def _launch(args: argparse.Namespace, request: _Request) -> int:
    # Heavier than the rest and not needed for --help, --dry-run and errors.
    from horovod._bootstrap.server import RendezvousServer

    hold_standard_descriptors()
    key = secrets.token_bytes(32)
    server = RendezvousServer(key, LOOPBACK)
    server.start()
    try:
        env = environment.common(os.environ, request.settings, request.interfaces, LOOPBACK, server.port, key)
        plan = JobPlan(
            hosts=_host_plans(request, env),
            grace_period=args.grace_period,
            start_timeout=request.config.start_timeout,
            output_directory=args.output_filename,
            timestamps=args.prefix_timestamp,
            verbose=args.verbose,
        )
        if args.verbose:
            print(f"horovodrun: rendezvous at {LOOPBACK}:{server.port}", file=sys.stderr)
            print(f"horovodrun: command: {shlex.join(request.command)}", file=sys.stderr)
        return run_job(plan, server)
    except OSError as error:
        print(f"horovodrun: {error}", file=sys.stderr)
        return 1
    finally:
        server.stop()


def _describe(request: _Request, environ: Mapping[str, str]) -> str:
    """The plan for human eyes: what is started where, and which variables differ from the launcher's."""
    env = environment.masked(
        environment.common(environ, request.settings, request.interfaces, LOOPBACK, 0, b"")
    )
    env["HOROVOD_GLOO_RENDEZVOUS_PORT"] = "<chosen at start>"
    lines = [f"Command: {shlex.join(request.command)}", f"Directory: {request.directory}"]
    lines.append("Environment of all ranks, as far as it differs:")
    lines += [f"  {name}={value}" for name, value in sorted(env.items()) if environ.get(name) != value]
    for plan in _host_plans(request, {}):
        lines.append(f"Host {plan.host}:")
        for worker in plan.workers:
            lines.append(f"  Rank {worker.rank}: {' '.join(f'{k}={v}' for k, v in worker.env.items())}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(run_commandline())
