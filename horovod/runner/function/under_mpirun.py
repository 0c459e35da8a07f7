"""``horovod.run(use_mpi=True)``: mpirun as a child of the launcher, which has the function."""

from __future__ import annotations

import os
import secrets
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from horovod.runner.function import exchange
from horovod.runner.function.exchange import FunctionServer
from horovod.runner.launcher.signals import ENDING, SignalReceiver
from horovod.runner.mpirun import MpirunJob
from horovod.runner.payload import Payload
from horovod.runner.processes import Sweep, become_subreaper, prepare_worker

FAILED = "mpirun failed with exit code"
_TICK = 0.05  # seconds between two looks at what is left


def run(
    job: MpirunJob,
    words_of: Callable[[MpirunJob], Sequence[str]],
    payload: Payload,
    addresses: Sequence[str],
    term_grace: float,
) -> int:
    """Runs the function and delivers the results; mpirun's exit code. OSError if it can't be
    served.

    ``words_of`` makes the command, ``addresses`` are where the workers reach this process,
    ``term_grace`` the seconds that they have after SIGTERM.
    """
    # Not needed for scripts
    from horovod._bootstrap.rendezvous.server import RendezvousServer

    key = secrets.token_bytes(32)
    functions = FunctionServer(payload.content())
    with RendezvousServer(key, addresses, clients=job.size) as server:
        server.accept(exchange.PURPOSE, functions.serve)
        env = {name: value for name, value in job.env.items() if name != Payload.VARIABLE}
        env[exchange.VARIABLE] = exchange.described(key, server.endpoints)
        code = _supervised(words_of(replace(job, env=env)), env, payload.parent, term_grace)
    if code != 0:
        print(f"horovodrun: {FAILED} {code}", file=sys.stderr)
    payload.deliver(functions.results)
    return code


def _supervised(words: Sequence[str], env: Mapping[str, str], parent: int, term_grace: float) -> int:
    """Until mpirun ends, a signal arrives, or ``parent`` says that the caller is gone.

    Leaves nobody.
    """
    become_subreaper()
    # Unlike a rank, mpirun must have the time to end what it has started, also elsewhere.
    prepare = prepare_worker(os.getpid(), signal.SIGTERM)
    with SignalReceiver() as signals:
        process = subprocess.Popen(words, env=dict(env), stdin=subprocess.DEVNULL, preexec_fn=prepare)
        life = os.pidfd_open(process.pid)
        try:
            ended_by = _wait(life, signals, parent)
        finally:
            os.close(life)
        sweep = Sweep(time.monotonic(), term_grace, groups=[process.pid])
        while not sweep.step(time.monotonic()):
            process.poll()
            time.sleep(_TICK)
        code = process.wait()
    if ended_by is not None:
        return 128 + ended_by
    return code if code >= 0 else 128 - code


def _wait(life: int, signals: SignalReceiver, parent: int) -> int | None:
    """The number of the signal that asked for the end, None if mpirun has come to its own."""
    poller = select.poll()
    for descriptor in (life, signals.read.fileno(), parent):
        poller.register(descriptor, select.POLLIN)
    while True:
        ready = {descriptor for descriptor, _ in poller.poll()}
        if life in ready:
            return None
        if parent in ready:
            return signal.SIGTERM
        if numbers := [number for number in signals.received() if number in ENDING]:
            return numbers[0]
