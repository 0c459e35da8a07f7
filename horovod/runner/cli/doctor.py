"""``horovodrun --doctor``: which hosts to ask, by the flags that a job would have."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping

from horovod.common.config import read
from horovod.runner import kubexec, ssh
from horovod.runner.cli import settings
from horovod.runner.cli.request import all_local, hosts_of
from horovod.runner.doctor.consultation import Patient, consult
from horovod.runner.plan.hosts import assign_ranks

USAGE_ERROR = 2


def doctor(args: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Prints the findings and returns the exit code: 1 if a job would fail."""
    try:
        # Without -np the slots of the hosts, or a rank for each processor here.
        args.np = args.np or (None if args.hosts or args.hostfile else len(os.sched_getaffinity(0)))
        hosts = hosts_of(args)
        ranks = {host.hostname: host.slots for host in hosts}
        if args.np is not None:
            slots = assign_ranks(hosts, args.np)
            ranks = {host: sum(slot.hostname == host for slot in slots) for host in ranks}
        timeout = read({**environ, **settings.variables(args, {}, environ)}).start_timeout
    except (ValueError, OSError) as error:
        print(f"horovodrun: {error}", file=sys.stderr)
        return USAGE_ERROR
    local = all_local(list(ranks))
    pythons = {host.hostname: host.python for host in hosts if host.python is not None}
    patients = [
        Patient(host, count, not local[host], pythons.get(host, sys.executable))
        for host, count in ranks.items()
        if count
    ]
    options = ssh.SshOptions(args.ssh_port, args.ssh_identity_file, kubexec.script(environ))
    return consult(patients, options, timeout, _words(args))


def _words(args: argparse.Namespace) -> list[str]:
    """The flags that lead to the hosts, for the job that measures."""
    words: list[str] = []
    for flag, value in (
        ("-p", args.ssh_port),
        ("-i", args.ssh_identity_file),
        ("--network-interfaces", settings.interfaces(args) or None),
    ):
        words += [] if value is None else [flag, str(value)]
    return words
