"""A training rank that gets its data from a compute job. Arguments: the configuration file."""

from __future__ import annotations

import sys
import threading

import numpy as np
import tensorflow as tf

import horovod.tensorflow as hvd
from horovod.common.exceptions import HorovodInternalError
from horovod.tensorflow.data.compute_service import TfDataServiceConfig, send_to_data_service, tf_data_service

service = tf.data.experimental.service
hvd.init()
config = TfDataServiceConfig.read(sys.argv[1], wait_for_file_creation=True, timeout=120)
numbers = tf.data.Dataset.range(40).map(lambda x: x * x)


def values(dataset: tf.data.Dataset, limit: int = 1000) -> list[int]:
    return [int(x) for x in dataset.take(limit).as_numpy_iterator()]


def everyones(mine: list[int]) -> list[int]:
    return hvd.allgather(tf.constant(mine, tf.int64)).numpy().tolist()


if config.dispatcher_side == "compute":
    # Each rank its own pass.
    own = send_to_data_service(numbers, config, hvd.rank())
    assert sorted(values(own)) == [i * i for i in range(40)]
    # One pass shared by the ranks, through the method of Dataset.
    shared = numbers.send_to_data_service(config, hvd.rank(), hvd.size(), reuse_dataset=True)
    assert sorted(everyones(values(shared))) == [i * i for i in range(40)]
    try:
        numbers.send_to_data_service(config, hvd.rank(), round_robin=True)
    except ValueError as error:
        assert "round_robin" in str(error)
    else:
        raise AssertionError("round_robin without size was accepted")
else:
    try:
        numbers.send_to_data_service(config, hvd.rank())
    except RuntimeError as error:
        assert "tf_data_service" in str(error)
    else:
        raise AssertionError("send_to_data_service() must refuse dispatchers on the training side")
    with tf_data_service(config, hvd.rank()) as address:
        assert address.startswith("grpc://")
        made = numbers.repeat().apply(
            service.distribute(
                "parallel_epochs", address, "turns", consumer_index=hvd.rank(), num_consumers=hvd.size()
            )
        )
        assert len(values(made, 30)) == 30

# A model trained on it, the same on all ranks.
if config.dispatcher_side == "compute":
    batches = numbers.repeat().map(lambda x: 0.5 + tf.cast(x, tf.float32) / 3200.0).batch(8)
    weight = tf.Variable(0.0)
    for batch in send_to_data_service(batches, config, hvd.rank()).take(5):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((weight * batch - 2.0 * batch) ** 2)
        gradient = hvd.DistributedGradientTape(tape).gradient(loss, weight)
        weight.assign_sub(0.1 * gradient)
    np.testing.assert_array_equal(everyones([int(weight.numpy() * 1e6)]), [int(weight.numpy() * 1e6)] * 2)
    assert 0.4 < weight.numpy() < 2.0

# Without the key nobody gets in.
stranger = TfDataServiceConfig(1, 1, "compute", config.addresses, bytes(32), timeout=20)
try:
    stranger.compute_client().shutdown()
except HorovodInternalError as error:
    assert "key" in str(error), error
else:
    raise AssertionError("a client with another key was let in")
hvd.mpi_ops.barrier()
if hvd.rank() == 0:
    waiter = threading.Thread(target=config.compute_client().wait_for_shutdown)
    waiter.start()
    config.compute_client(verbose=2).shutdown()
    waiter.join(30)
    assert not waiter.is_alive()
    print("trained with the data service")
