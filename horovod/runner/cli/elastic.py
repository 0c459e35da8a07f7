"""An elastic job from the command line: what the user wants, checked, and its start."""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from horovod._net import descriptors
from horovod._net.addresses import LOOPBACK, Endpoint
from horovod.common.config import Config, Value, read
from horovod.runner import jsrun, kubexec, ssh
from horovod.runner.cli import settings
from horovod.runner.cli.config_file import read_config_file
from horovod.runner.elastic.discovery import HostDiscoveryScript
from horovod.runner.elastic.state import Limits
from horovod.runner.payload import Payload
from horovod.runner.plan import environment
from horovod.runner.plan.hosts import HostInfo, parse_hostfile, parse_hosts
from horovod.runner.processes import hold_standard_descriptors

_LONGEST_COOLDOWN = 3600
_DEFAULT_GRACE = 30.0
_CONNECTIONS = 1024  # that the rendezvous is prepared for: nobody knows how many ranks will come
_TALKATIVE = ("trace", "debug", "info")


@dataclass(frozen=True)
class ElasticRequest:
    """What the user wants of an elastic job, checked."""

    limits: Limits
    hosts: list[HostInfo] | None
    script: HostDiscoveryScript | None
    command: list[str]
    directory: str
    settings: dict[str, str]
    interfaces: str
    config: Config
    ssh: ssh.SshOptions


def understand(args: argparse.Namespace, command: list[str], environ: Mapping[str, str]) -> ElasticRequest:
    """All of it together. ValueError or OSError names what is wrong."""
    from_file: dict[str, Value] = {}
    controller: str | None = None
    if args.config_file is not None:
        with open(args.config_file, encoding="utf-8") as file:
            from_file, controller = read_config_file(file.read(), args.config_file)
    if settings.uses_mpirun(args, controller) or jsrun.wanted(
        args.jsrun, bool(args.gloo or controller), environ
    ):
        raise ValueError("an elastic job is started by horovodrun itself, not by mpirun or jsrun: use --gloo")
    variables = settings.variables(args, from_file, environ)
    for note in settings.notes(args, from_file):
        print(f"horovodrun: note: {note}", file=sys.stderr)
    config = read({**environ, **variables})
    if config.topology is not None:
        raise ValueError("HOROVOD_TOPOLOGY groups a fixed number of ranks: unset it for an elastic job")
    if config.cpu_operations == "mpi":
        raise ValueError("HOROVOD_CPU_OPERATIONS=mpi: MPI can't carry the data of an elastic job; unset it")
    limits = _limits(args, config)
    if args.ssh_identity_file is not None and not os.path.isfile(args.ssh_identity_file):
        raise ValueError(f"-i {args.ssh_identity_file}: there is no such file")
    script = None
    if args.host_discovery_script is not None:
        script = HostDiscoveryScript(args.host_discovery_script, args.slots_per_host)
    return ElasticRequest(
        limits=limits,
        hosts=_fixed_hosts(args, limits) if script is None else None,
        script=script,
        command=command,
        directory=os.getcwd(),
        settings=variables,
        interfaces=settings.interfaces(args),
        config=config,
        ssh=ssh.SshOptions(args.ssh_port, args.ssh_identity_file, kubexec.script(environ)),
    )


def _limits(args: argparse.Namespace, config: Config) -> Limits:
    least = args.np if args.min_np is None else args.min_np
    if args.np < least:
        raise ValueError(f"-np {args.np} is below --min-np {least}: start with at least as many")
    if args.max_np is not None and args.max_np < args.np:
        raise ValueError(f"--max-np {args.max_np} is below -np {args.np}: allow at least as many")
    cooldown = args.blacklist_cooldown_range
    if cooldown is not None:
        if len(cooldown) != 2 or not 1 <= cooldown[0] <= cooldown[1] <= _LONGEST_COOLDOWN:
            raise ValueError(
                f"--blacklist-cooldown-range {' '.join(map(str, cooldown))} is not valid: it must be MIN MAX "
                f"with 1 <= MIN <= MAX <= {_LONGEST_COOLDOWN}"
            )
        cooldown = (cooldown[0], cooldown[1])
    return Limits(
        start=args.np,
        least=least,
        most=args.max_np,
        reset_limit=args.reset_limit,
        elastic_timeout=config.elastic_timeout,
        cooldown=cooldown,
        failures_before_blacklist=args.failures_before_blacklist or 1,
        warm_join=config.elastic_warm_join,
        durable=args.commit_dir is not None,
        fixed=args.host_discovery_script is None,
    )


def _fixed_hosts(args: argparse.Namespace, limits: Limits) -> list[HostInfo]:
    if args.hosts is not None:
        hosts = parse_hosts(args.hosts)
    elif args.hostfile is not None:
        with open(args.hostfile, encoding="utf-8") as file:
            hosts = parse_hostfile(file.read(), args.hostfile)
    else:
        hosts = [HostInfo("localhost", args.np)]
    if len(hosts) < 2 and limits.failures_before_blacklist < 2 and limits.cooldown is None:
        raise ValueError(
            f"an elastic job on {hosts[0].hostname} alone could not survive a failure, because a host that "
            "fails is not used again: name more hosts (-H, --host-discovery-script), or allow failures with "
            "--failures-before-blacklist"
        )
    slots = sum(host.slots for host in hosts)
    if slots < limits.start:
        raise ValueError(
            f"{limits.start} processes were requested but the hosts have {slots} slots: "
            "ask for fewer with -np or give the hosts more slots"
        )
    return hosts


def describe(request: ElasticRequest) -> str:
    """The plan for human eyes."""
    limits = request.limits
    if request.script is not None:
        source = f"Hosts: what '{request.script.discovery_script}' says"
    else:
        source = "Hosts: " + ",".join(f"{host.hostname}:{host.slots}" for host in request.hosts or [])
    most = "all slots" if limits.most is None else f"{limits.most} processes"
    return "\n".join(
        [
            f"Command: {shlex.join(request.command)}",
            f"Directory: {request.directory}",
            source,
            f"Elastic: starts with {limits.start} processes, goes on with {limits.least}, at most {most}",
        ]
    )


def launch(args: argparse.Namespace, request: ElasticRequest) -> int:
    """Runs the job and returns the exit code."""
    # Heavier than the rest and not needed for --help, --dry-run and errors.
    from horovod._bootstrap.rendezvous.server import RendezvousServer
    from horovod.runner.cli import observing
    from horovod.runner.elastic.job import ElasticJob
    from horovod.runner.elastic.plan import ElasticPlan
    from horovod.runner.launcher import observation
    from horovod.runner.launcher.supervision import Manner
    from horovod.runner.plan.job_plan import Cluster

    hold_standard_descriptors()
    descriptors.raise_limit()
    payload = Payload.from_environment(os.environ)
    key = secrets.token_bytes(32)
    environ = {name: value for name, value in os.environ.items() if name != Payload.VARIABLE}
    environ[observation.VARIABLE] = observing.interval(args)
    if args.timeline is not None:
        environ[observing.timelines().VARIABLE] = "1"
    interfaces = tuple(name for name in request.interfaces.split(",") if name)
    grace = _DEFAULT_GRACE if args.preemption_grace is None else args.preemption_grace

    further = {"HOROVOD_PREEMPTION_GRACE": f"{grace:g}"}
    if args.commit_dir is not None:
        further["HOROVOD_COMMIT_DIR"] = os.path.abspath(args.commit_dir)

    def environment_of(host: str, remote: bool, endpoint: Endpoint) -> dict[str, str]:
        return environment.common(
            environ,
            {**request.settings, **further},
            request.interfaces,
            *endpoint,
            key,
            exclude=request.config.env_exclude,
            remote=remote,
            several=remote,
        )

    with contextlib.ExitStack() as stack:
        try:
            timeline = None if args.timeline is None else Path(args.timeline).absolute()
            if timeline is not None:
                observing.timelines().prepare(timeline)
            server = RendezvousServer(key, [LOOPBACK], clients=_CONNECTIONS)
            server.start()
            stack.callback(server.stop)
            plan = ElasticPlan(
                limits=request.limits,
                manner=Manner(
                    grace_period=args.grace_period,
                    term_grace=request.config.term_grace_period,
                    start_timeout=request.config.start_timeout,
                    host_timeout=request.config.host_timeout_seconds,
                    verbose=args.verbose,
                    cluster=Cluster(frozenset(), key, request.ssh, interfaces),
                    parent=None if payload is None else payload.parent,
                ),
                directory=request.directory,
                command=request.command,
                environment=environment_of,
                key=key,
                hosts=request.hosts,
                script=request.script,
                discovery_seconds=request.config.elastic_discovery_seconds,
                interfaces=interfaces,
                payload=None if payload is None else payload.content(),
                preemption_grace=grace,
                output_directory=args.output_filename,
                timestamps=args.prefix_timestamp,
                events_file=args.events_file,
                timeline="" if timeline is None else str(timeline),
                talkative=args.verbose or request.config.log_level in _TALKATIVE,
            )
            job, code = observing.run(
                args,
                server,
                lambda watch: ElasticJob(plan, server, watch),
                np=request.limits.start,
                hosts={},  # which come with the ranks
                command=request.command,
                settings=request.settings,
            )
        except OSError as error:
            print(f"horovodrun: {error}", file=sys.stderr)
            return 1
        if payload is not None:
            payload.deliver({rank: bytes(result) for rank, result in job.results.items()})
        if timeline is not None:
            observing.timelines().finish(timeline, job.recorded, job.reasons)
        return code
