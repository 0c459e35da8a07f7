"""``horovodrun``: the command line."""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from horovod._net import descriptors
from horovod._net.addresses import LOOPBACK, own_addresses
from horovod.common.util import mpi_built
from horovod.runner import jsrun, lsf, mpirun, ssh
from horovod.runner.cli import elastic_switch, observing
from horovod.runner.cli.flags import FlagParser
from horovod.runner.cli.request import Request, understand
from horovod.runner.function import under_mpirun
from horovod.runner.launcher import observation
from horovod.runner.launcher.job import Job
from horovod.runner.payload import Payload
from horovod.runner.plan import environment
from horovod.runner.plan.command import NOT_EXECUTABLE, NOT_FOUND, CommandError
from horovod.runner.plan.job_plan import Cluster, HostPlan, JobPlan, Worker
from horovod.runner.processes import hold_standard_descriptors

USAGE_ERROR = 2


def run_commandline(argv: Sequence[str] | None = None) -> int:
    """Entry point of ``horovodrun``; returns the exit code."""
    parser = FlagParser()
    args, command = parser.parse(sys.argv[1:] if argv is None else argv)
    if args.check_build:
        from horovod.runner.cli.check_build import check_build  # here, as below: no start needs it

        print(check_build(args.verbose))
        return 0
    if args.doctor:
        from horovod.runner.cli.doctor import doctor

        return doctor(args, os.environ)
    if args.jobs:
        from horovod.runner.cli.job_list import job_list

        print(job_list(os.environ))
        return 0
    if args.top:
        from horovod.runner.top import top

        return top(command[0] if command else None, os.environ)
    if args.stack_dump:
        from horovod.runner.cli.stack_dump import stack_dump

        return stack_dump(command[0] if command else None, os.environ)
    if not command:
        parser.error("the command is missing: horovodrun -np 2 python train.py")
    try:
        args.np = args.np or lsf.size(os.environ)
        if args.np is None:
            parser.error("the number of processes is missing: give -np N")
        elastic_switch.complete(args)
        if elastic_switch.wanted(args):
            return _run_elastic(args, command)
        request = understand(args, command, os.environ)
    except CommandError as error:
        print(f"horovodrun: {error}", file=sys.stderr)
        return error.exit_code
    except (ValueError, OSError) as error:
        print(f"horovodrun: {error}", file=sys.stderr)
        return USAGE_ERROR
    if request.jsrun is not None:
        return _run_jsrun(args, request.jsrun)
    if request.mpirun is not None:
        return _run_mpirun(args, request, request.mpirun)
    if args.dry_run:
        print(_describe(request, os.environ))
        return 0
    return _launch(args, request)


def _run_elastic(args: argparse.Namespace, command: list[str]) -> int:
    from horovod.runner.cli import elastic  # here: other jobs need not load it

    request = elastic.understand(args, command, os.environ)
    if args.dry_run:
        print(elastic.describe(request))
        return 0
    return elastic.launch(args, request)


def _run_mpirun(args: argparse.Namespace, request: Request, job: mpirun.MpirunJob) -> int:
    """Replaces this process by mpirun, which forwards output, signals and the exit code in its own
    way.

    Not if it is to run a function: this process has it and takes the results.
    """
    try:
        program, kind = mpirun.find(os.environ.get("PATH"))
        words = mpirun.command_line(job, program, kind)
        if args.dry_run:
            print(shlex.join(words))
            return 0
        if not mpi_built():
            raise ValueError(f"--mpi: mpi4py, or the MPI library that it needs, is missing: {mpirun.REMEDY}")
    except ValueError as error:
        print(f"horovodrun: {error}", file=sys.stderr)
        return USAGE_ERROR
    if args.verbose:
        print(f"horovodrun: {shlex.join(words)}", file=sys.stderr, flush=True)
    payload = Payload.from_environment(os.environ)
    try:
        if payload is not None:
            return under_mpirun.run(
                job,
                lambda job: mpirun.command_line(job, program, kind),
                payload,
                _listen_on(request),
                request.config.term_grace_period,
            )
        os.execve(words[0], words, dict(job.env))
    except (OSError, ValueError) as error:
        print(f"horovodrun: cannot run {words[0]}: {error}", file=sys.stderr)
        return NOT_EXECUTABLE


def _run_jsrun(args: argparse.Namespace, job: jsrun.JsrunJob) -> int:
    try:
        jsrun.execute(job, args.dry_run, args.verbose)
    except (ValueError, OSError) as error:
        print(f"horovodrun: {error}", file=sys.stderr)
        return USAGE_ERROR
    return 0


def _host_plans(
    request: Request, environ: Mapping[str, str], endpoint: tuple[str, int], key: bytes, task: bool
) -> list[HostPlan]:
    def env(host: str) -> dict[str, str]:
        path = dict(environ)
        if host in request.pythons:  # "python" is then that one
            path["PATH"] = os.pathsep.join([os.path.dirname(request.pythons[host]), environ.get("PATH", "")])
        return environment.common(
            path,
            request.settings,
            request.interfaces,
            *endpoint,
            key,
            exclude=request.config.env_exclude,
            remote=host in request.remote,
            several=bool(request.remote),
        )

    all_ranks = request.config.timeline_ranks == "all" and request.config.timeline != "DYNAMIC"
    return [
        HostPlan(
            host=host,
            directory=request.directory,
            command=request.command,
            env=env(host),
            workers=[
                Worker(slot.rank, slot.environment()) for slot in request.slots if slot.hostname == host
            ],
            resolve=bool(request.remote),
            task=task,
            term_grace=request.config.term_grace_period,
            timeline=(request.config.timeline or "") if all_ranks and host in request.remote else "",
            share_threads=request.config.share_threads,
        )
        for host in dict.fromkeys(slot.hostname for slot in request.slots)
    ]


def _listen_on(request: Request) -> list[str]:
    """The launcher's addresses: loopback if nobody else takes part."""
    if not request.remote:
        return [LOOPBACK]
    found = [entry.address for entry in own_addresses(_interface_list(request))]
    if not found:
        raise OSError("this machine has no network address besides loopback, so no other host can reach it")
    return found


def _descriptors(request: Request, files: bool) -> int:
    """At most: each rank's connection and files, an agent's pipes and keepalive connection."""
    hosts = len({slot.hostname for slot in request.slots})
    return len(request.slots) * (3 if files else 1) + 4 * hosts


def _interface_list(request: Request) -> list[str]:
    return [name for name in request.interfaces.split(",") if name]


def _launch(args: argparse.Namespace, request: Request) -> int:
    # Heavier than the rest and not needed for --help, --dry-run and errors.
    from horovod._bootstrap.rendezvous.server import RendezvousServer

    if request.remote and request.ssh.script is None and shutil.which("ssh") is None:
        text = "ssh is not installed here, and other hosts are reached through it: install an OpenSSH client"
        print(f"horovodrun: {text} (Debian, Ubuntu: apt-get install openssh-client)", file=sys.stderr)
        return NOT_FOUND
    hold_standard_descriptors()
    descriptors.raise_limit()
    payload = Payload.from_environment(os.environ)
    key = secrets.token_bytes(32)
    with contextlib.ExitStack() as stack:
        try:
            descriptors.require(_descriptors(request, args.output_filename is not None), "the ranks")
            server = RendezvousServer(key, _listen_on(request), clients=len(request.slots))
            server.start()
        except (OSError, ValueError) as error:
            print(f"horovodrun: {error}", file=sys.stderr)
            return 1
        stack.callback(server.stop)
        environ = {name: value for name, value in os.environ.items() if name != Payload.VARIABLE}
        environ[observation.VARIABLE] = observing.interval(args)
        if args.timeline is not None:
            environ[observing.timelines().VARIABLE] = "1"
        endpoint = server.endpoints[0]
        cluster = Cluster(
            request.remote, key, request.ssh, tuple(_interface_list(request)), dict(request.pythons)
        )
        plan = JobPlan(
            hosts=_host_plans(request, environ, endpoint, key, task=payload is not None),
            grace_period=args.grace_period,
            term_grace=request.config.term_grace_period,
            start_timeout=request.config.start_timeout,
            host_timeout=request.config.host_timeout_seconds,
            output_directory=args.output_filename,
            timestamps=args.prefix_timestamp,
            verbose=args.verbose,
            cluster=cluster if request.remote else None,
            payload=b"" if payload is None else payload.content(),
            parent=None if payload is None else payload.parent,
        )
        if args.verbose:
            where = ", ".join(f"{address}:{port}" for address, port in server.endpoints)
            print(f"horovodrun: rendezvous at {where}", file=sys.stderr)
            print(f"horovodrun: command: {shlex.join(request.command)}", file=sys.stderr)
        try:
            timeline = None if args.timeline is None else Path(args.timeline).absolute()
            if timeline is not None:
                observing.timelines().prepare(timeline)
            job, code = observing.run(
                args,
                server,
                lambda watch: Job(plan, server, watch),
                np=len(request.slots),
                hosts=_ranks(request),
                command=request.command,
                settings=request.settings,
            )
        except ValueError as error:
            print(f"horovodrun: {error}", file=sys.stderr)
            return USAGE_ERROR
        except OSError as error:
            print(f"horovodrun: {error}", file=sys.stderr)
            return 1
        if payload is not None:
            payload.deliver({rank: bytes(result) for rank, result in job.results.items()})
        if timeline is not None:
            observing.timelines().finish(timeline, job.recorded)
        return code


def _ranks(request: Request) -> dict[str, list[int]]:
    result: dict[str, list[int]] = {}
    for slot in request.slots:
        result.setdefault(slot.hostname, []).append(slot.rank)
    return result


def _describe(request: Request, environ: Mapping[str, str]) -> str:
    """The plan for human eyes: what is started where, with which other variables than here."""
    found_out = "<found out at start>"
    plans = _host_plans(request, environ, (found_out if request.remote else LOOPBACK, 0), b"", task=False)
    env = environment.masked(plans[0].env)
    env["HOROVOD_GLOO_RENDEZVOUS_PORT"] = "<chosen at start>"
    if request.remote:
        env["HOROVOD_ADDRESSES"] = found_out
    lines = [f"Command: {shlex.join(request.command)}", f"Directory: {request.directory}"]
    lines.append("Environment of all ranks, as far as it differs:")
    lines += [f"  {name}={value}" for name, value in sorted(env.items()) if environ.get(name) != value]
    for plan in plans:
        lines.append(f"Host {plan.host}:")
        if plan.host in request.remote:
            python = request.pythons.get(plan.host, sys.executable)
            words = ssh.command(plan.host, request.ssh, request.config.start_timeout, python)
            lines.append(f"  Through: {shlex.join(words)}")
        for worker in plan.workers:
            lines.append(f"  Rank {worker.rank}: {' '.join(f'{k}={v}' for k, v in worker.env.items())}")
    return "\n".join(lines)
