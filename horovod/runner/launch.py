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
from dataclasses import dataclass

from horovod._bootstrap import descriptors
from horovod._bootstrap.topology import groups_of
from horovod.common.config import Config, Value, read
from horovod.common.util import mpi_built
from horovod.runner import environment, flags, jsrun, kubexec, lsf, mpirun, mpirun_function, ssh
from horovod.runner.arguments import parse_args
from horovod.runner.command import NOT_EXECUTABLE, NOT_FOUND, CommandError, resolve
from horovod.runner.controllers import is_gloo_used, run_controller
from horovod.runner.hosts import HostInfo, SlotInfo, assign_ranks, parse_hostfile, parse_hosts
from horovod.runner.job import Job
from horovod.runner.network import LOOPBACK, addresses, is_local
from horovod.runner.plan import Cluster, HostPlan, JobPlan, Worker
from horovod.runner.processes import hold_standard_descriptors
from horovod.runner.taskfiles import Errand

__all__ = ["is_gloo_used", "parse_args", "run_commandline", "run_controller"]

USAGE_ERROR = 2
_LOOKUPS = 32  # of host names at a time


@dataclass(frozen=True)
class _Request:
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


def run_commandline(argv: Sequence[str] | None = None) -> int:
    """Entry point of ``horovodrun``; returns the exit code."""
    parser = flags.FlagParser()
    args, command = parser.parse(sys.argv[1:] if argv is None else argv)
    if args.check_build:
        from horovod.runner.check_build import check_build  # here, as below: no start needs it

        print(check_build(args.verbose))
        return 0
    if not command:
        parser.error("the command is missing: horovodrun -np 2 python train.py")
    try:
        args.np = args.np or lsf.size(os.environ)
        if args.np is None:
            parser.error("the number of processes is missing: give -np N")
        request = _understand(args, command, os.environ)
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


def _understand(args: argparse.Namespace, command: list[str], environ: Mapping[str, str]) -> _Request:
    from_file: dict[str, Value] = {}
    controller: str | None = None
    if args.config_file is not None:
        from_file, controller = flags.read_config_file(_text_of(args.config_file), args.config_file)
    by_mpirun = flags.uses_mpirun(args, controller)
    by_jsrun = jsrun.wanted(args.jsrun, bool(args.mpi or args.gloo or controller), environ)
    missing = flags.not_supported(args)
    if missing is not None:
        raise ValueError(f"{missing}: not supported yet")
    settings = flags.settings(args, from_file, environ)
    for name in flags.without_effect(args, from_file, by_mpirun or by_jsrun):
        print(f"horovodrun: note: {name} has no effect", file=sys.stderr)
    hosts = _hosts(args)
    slots = assign_ranks(hosts, args.np)
    # Also finds bad inherited values now rather than in each worker.
    config = read({**environ, **settings})
    if config.topology is not None:
        groups_of(config.topology, args.np)
    names = sorted({slot.hostname for slot in slots})
    local = _all_local(names)
    remote = frozenset(host for host in names if not local[host])
    if args.ssh_identity_file is not None and not os.path.isfile(args.ssh_identity_file):
        raise ValueError(f"-i {args.ssh_identity_file}: there is no such file")
    if args.ssh_port is not None and not 0 < args.ssh_port < 65536:
        raise ValueError(f"-p {args.ssh_port} is not a port: it must be between 1 and 65535")
    directory = os.getcwd()
    # Other machines may have it elsewhere: their agents look for it.
    words = command if remote else resolve(command, directory, environ.get("PATH"))
    ssh_options = ssh.SshOptions(args.ssh_port, args.ssh_identity_file, kubexec.script(environ))
    job = mpirun.MpirunJob(
        size=args.np,
        hosts=hosts,
        command=words,
        env=mpirun.environment(environ, settings, config.env_exclude),
        interfaces=flags.interfaces(args),
        ssh=ssh_options,
        output=args.output_filename,
        timestamps=args.prefix_timestamp,
        tcp=args.tcp,
        mpi_args=args.mpi_args or "",
        binding_args=args.binding_args,
    )
    return _Request(
        slots=slots,
        command=words,
        directory=directory,
        settings=settings,
        interfaces=flags.interfaces(args),
        config=config,
        remote=remote,
        pythons={host.hostname: host.python for host in hosts if host.python is not None},
        ssh=ssh_options,
        mpirun=job if by_mpirun else None,
        jsrun=jsrun.JsrunJob(job, slots, lsf.hosts(environ)) if by_jsrun else None,
    )


def _all_local(names: Sequence[str]) -> dict[str, bool]:
    if len(names) == 1:
        return {names[0]: is_local(names[0])}
    from concurrent.futures import ThreadPoolExecutor  # here: most jobs are on one host

    with ThreadPoolExecutor(_LOOKUPS) as pool:  # an answer may take seconds
        return dict(zip(names, pool.map(is_local, names), strict=True))


def _run_mpirun(args: argparse.Namespace, request: _Request, job: mpirun.MpirunJob) -> int:
    """Replaces this process by mpirun, which forwards output, signals and the exit code in its own way.

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
    errand = Errand.from_environment(os.environ)
    try:
        if errand is not None:
            return mpirun_function.run(
                job,
                lambda job: mpirun.command_line(job, program, kind),
                errand,
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


def _hosts(args: argparse.Namespace) -> list[HostInfo]:
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


def _host_plans(
    request: _Request, environ: Mapping[str, str], endpoint: tuple[str, int], key: bytes, task: bool
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
        )
        for host in dict.fromkeys(slot.hostname for slot in request.slots)
    ]


def _listen_on(request: _Request) -> list[str]:
    """The launcher's addresses: loopback if nobody else takes part."""
    if not request.remote:
        return [LOOPBACK]
    found = [entry.address for entry in addresses(_interface_list(request))]
    if not found:
        raise OSError("this machine has no network address besides loopback, so no other host can reach it")
    return found


def _descriptors(request: _Request, files: bool) -> int:
    """At most: a connection of each rank to the rendezvous, its files, and an agent's pipes and watch."""
    hosts = len({slot.hostname for slot in request.slots})
    return len(request.slots) * (3 if files else 1) + 4 * hosts


def _interface_list(request: _Request) -> list[str]:
    return [name for name in request.interfaces.split(",") if name]


def _launch(args: argparse.Namespace, request: _Request) -> int:
    # Heavier than the rest and not needed for --help, --dry-run and errors.
    from horovod._bootstrap.server import RendezvousServer

    if request.remote and request.ssh.script is None and shutil.which("ssh") is None:
        text = "ssh is not installed here, and other hosts are reached through it: install an OpenSSH client"
        print(f"horovodrun: {text} (Debian, Ubuntu: apt-get install openssh-client)", file=sys.stderr)
        return NOT_FOUND
    hold_standard_descriptors()
    descriptors.raise_limit()
    errand = Errand.from_environment(os.environ)
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
        environ = {name: value for name, value in os.environ.items() if name != Errand.VARIABLE}
        endpoint = server.endpoints[0]
        cluster = Cluster(
            request.remote, key, request.ssh, tuple(_interface_list(request)), dict(request.pythons)
        )
        plan = JobPlan(
            hosts=_host_plans(request, environ, endpoint, key, task=errand is not None),
            grace_period=args.grace_period,
            term_grace=request.config.term_grace_period,
            start_timeout=request.config.start_timeout,
            output_directory=args.output_filename,
            timestamps=args.prefix_timestamp,
            verbose=args.verbose,
            cluster=cluster if request.remote else None,
            payload=b"" if errand is None else errand.payload(),
            parent=None if errand is None else errand.parent,
        )
        if args.verbose:
            where = ", ".join(f"{address}:{port}" for address, port in server.endpoints)
            print(f"horovodrun: rendezvous at {where}", file=sys.stderr)
            print(f"horovodrun: command: {shlex.join(request.command)}", file=sys.stderr)
        try:
            job = Job(plan, server)
            code = job.run()
        except OSError as error:
            print(f"horovodrun: {error}", file=sys.stderr)
            return 1
        if errand is not None:
            errand.deliver({rank: bytes(result) for rank, result in job.results.items()})
        return code


def _describe(request: _Request, environ: Mapping[str, str]) -> str:
    """The plan for human eyes: what is started where, and which variables differ from the launcher's."""
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


if __name__ == "__main__":
    sys.exit(run_commandline())
