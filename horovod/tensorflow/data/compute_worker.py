"""The compute job: `horovodrun -np 2 python -m horovod.tensorflow.data.compute_worker
compute.json`.

It writes the file that the training job reads, and ends when a client of it calls shutdown().
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path

from horovod import numpy as hvd
from horovod._bootstrap.identity import detect
from horovod._net.addresses import LOOPBACK, own_addresses
from horovod.common import session as sessions
from horovod.tensorflow.data.compute_registry import ComputeRegistry
from horovod.tensorflow.data.compute_service import TfDataServiceConfig, compute_worker_fn
from horovod.tensorflow.data.service_config import SIDES


def _by_interface(endpoints: list[tuple[str, int]]) -> dict[str, list[tuple[str, int]]]:
    interfaces = {entry.address: entry.interface for entry in own_addresses()}
    result: dict[str, list[tuple[str, int]]] = {}
    for host, port in endpoints:
        result.setdefault(interfaces.get(host, "lo"), []).append((host, port))
    return result


def _own_addresses(interface: str) -> list[str]:
    """Where the registry listens: where the other hosts of
    the job reach this one, or on `interface`."""
    if interface:
        return [entry.address for entry in own_addresses([interface])]
    return list(detect().addresses) or [LOOPBACK]


def main(
    dispatchers: int, dispatcher_side: str, configfile: str, timeout: float = 60, interface: str = ""
) -> None:
    """Runs this rank's part of the compute job."""
    hvd.init()
    workers, rest = divmod(hvd.size(), dispatchers)
    if rest or not workers:
        raise ValueError(
            f"{hvd.size()} ranks can't be divided among {dispatchers} dispatchers: choose another -np"
        )
    # Every rank can work it out and none has to send it.
    key = sessions.for_query().derived_key("tf.data compute service")
    with contextlib.ExitStack() as running:
        endpoints: list[tuple[str, int]] = []
        if hvd.rank() == 0:
            registry = ComputeRegistry(key, _own_addresses(interface), dispatchers, workers)
            endpoints = running.enter_context(registry).endpoints
        addresses = _by_interface(hvd.broadcast_object(endpoints, 0))
        config = TfDataServiceConfig(dispatchers, workers, dispatcher_side, addresses, key, timeout)
        if hvd.rank() == 0:
            config.write(configfile)
            running.callback(Path(configfile).unlink, missing_ok=True)
        compute_worker_fn(config)
        hvd.barrier()  # all have heard of the end before the registry goes


def run_commandline() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(
        prog="python -m horovod.tensorflow.data.compute_worker",
        description="One rank of a compute job, which preprocesses data for a training job with the tf.data "
        "service. Start it with horovodrun.",
    )
    parser.add_argument("configfile", help="written for the training job; holds a secret")
    parser.add_argument("--dispatchers", type=int, default=1, help="number of dispatchers (default: 1)")
    parser.add_argument(
        "--dispatcher-side",
        choices=SIDES,
        default="compute",
        help="the job in whose processes the dispatchers run (default: compute)",
    )
    parser.add_argument(
        "--timeout", type=float, default=60, help="seconds that parts wait for each other (default: 60)"
    )
    parser.add_argument(
        "--network-interface",
        default="",
        help="where rank 0 can be reached; for a compute job on a single host, which otherwise can only be "
        "reached from there",
    )
    options = parser.parse_args()
    if options.dispatchers < 1 or options.timeout <= 0:
        parser.error("--dispatchers must be at least 1, --timeout above 0")
    if not Path(options.configfile).absolute().parent.is_dir():
        parser.error(f"there is no directory for {options.configfile}")
    try:
        main(
            options.dispatchers,
            options.dispatcher_side,
            options.configfile,
            options.timeout,
            options.network_interface,
        )
    except ValueError as error:
        parser.error(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(run_commandline())
