"""The tf.data service for a training job: preprocessing by the ranks of another job, the compute
job.

Start that one with `horovodrun -np 2 python -m horovod.tensorflow.data.compute_worker
compute.json`. In the training, `TfDataServiceConfig.read("compute.json",
wait_for_file_creation=True)` finds it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from horovod import numpy as hvd
from horovod.tensorflow.data.compute_registry import ComputeClient
from horovod.tensorflow.data.service_config import TfDataServiceConfig

__all__ = ["TfDataServiceConfig", "compute_worker_fn", "send_to_data_service", "tf_data_service"]

_PROTOCOL = "grpc"


def _netloc(client: ComputeClient, port: str) -> str:
    """Where processes of both jobs reach a port of this one."""
    host = client.own_address()
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@contextlib.contextmanager
def _dispatcher(client: ComputeClient, number: int) -> Iterator[None]:
    """Runs a dispatcher here."""
    service = tf.data.experimental.service
    server = service.DispatchServer(service.DispatcherConfig(port=0, protocol=_PROTOCOL), start=True)
    try:
        port = server.target.rsplit(":", 1)[1]
        client.register_dispatcher(number, f"{_PROTOCOL}://{_netloc(client, port)}")
        yield
    finally:
        server._stop()


@contextlib.contextmanager
def _worker(client: ComputeClient, address: str) -> Iterator[None]:
    """Runs a worker of a dispatcher here."""
    service = tf.data.experimental.service
    config = service.WorkerConfig(
        dispatcher_address=address.removeprefix(f"{_PROTOCOL}://"),
        worker_address=_netloc(client, "%port%"),
        port=0,
        protocol=_PROTOCOL,
    )
    server = service.WorkerServer(config, start=True)
    try:
        yield
    finally:
        server._stop()


def compute_worker_fn(compute_config: TfDataServiceConfig) -> None:
    """What each rank of the compute job does: dispatchers
    and workers until shutdown() of a client."""
    hvd.init()
    wanted = compute_config.dispatchers * compute_config.workers_per_dispatcher
    if hvd.size() != wanted:
        raise ValueError(
            f"{compute_config.dispatchers} dispatchers with {compute_config.workers_per_dispatcher} workers "
            f"each need a compute job of {wanted} ranks; this one has {hvd.size()}"
        )
    client = compute_config.compute_client(verbose=2)
    number, worker = divmod(hvd.rank(), compute_config.workers_per_dispatcher)
    with contextlib.ExitStack() as running:
        if compute_config.dispatcher_side == "compute" and worker == 0:
            running.enter_context(_dispatcher(client, number))
        address = client.wait_for_dispatcher_registration(number, compute_config.timeout)
        running.enter_context(_worker(client, address))
        client.register_worker_for_dispatcher(number, worker)
        client.wait_for_shutdown()


@contextlib.contextmanager
def tf_data_service(compute_config: TfDataServiceConfig, rank: int) -> Iterator[str]:
    """The address of this rank's dispatcher, for
    tf.data.experimental.service.distribute(service=...).

    With dispatcher_side="training" the dispatchers run in the first ranks of the training for the
    time of the block, and all ranks must enter and leave it.
    """
    client = compute_config.compute_client(verbose=2)
    here = compute_config.dispatcher_side == "training"
    with contextlib.ExitStack() as running:
        if here and rank < compute_config.dispatchers:
            running.enter_context(_dispatcher(client, rank))
        number = rank % compute_config.dispatchers
        address = client.wait_for_dispatcher_registration(number, compute_config.timeout)
        client.wait_for_dispatcher_worker_registration(number, compute_config.timeout)
        yield address
        if here and hvd.is_initialized():
            hvd.barrier()  # other ranks may still be reading


def send_to_data_service(
    dataset: Any,
    compute_config: TfDataServiceConfig,
    rank: int,
    size: int | None = None,
    processing_mode: str = "distributed_epoch",
    reuse_dataset: bool = False,
    round_robin: bool = False,
) -> Any:
    """The dataset as the compute job makes it. Also a method of tf.data.Dataset.

    reuse_dataset: the ranks share one pass over the data; otherwise each has its own.
    round_robin: with reuse_dataset, the ranks take turns, which needs `size` and an endless
    dataset.
    """
    if compute_config.dispatcher_side == "training":
        raise RuntimeError(
            "dispatchers on the training side live as long as a block `with tf_data_service(config, rank) as "
            "address:`; use that with tf.data.experimental.service.distribute()"
        )
    if round_robin and (not reuse_dataset or size is None):
        raise ValueError("round_robin=True needs reuse_dataset=True and size, the number of ranks")
    with tf_data_service(compute_config, rank) as address:
        return dataset.apply(
            tf.data.experimental.service.distribute(
                processing_mode=processing_mode,
                service=address,
                job_name="job" if reuse_dataset else None,
                consumer_index=rank if round_robin else None,
                num_consumers=size if round_robin else None,
            )
        )


tf.data.Dataset.send_to_data_service = send_to_data_service
