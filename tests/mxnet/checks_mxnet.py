"""horovod.mxnet with the real MXNet: collectives against horovod.numpy, training against one process."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from util_expect import raises

import horovod.mxnet as hvd
import horovod.numpy as hvn

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
DTYPES = ("float16", "float32", "float64", "uint8", "int8", "int32", "int64")


def same(found: Any, expected: Any) -> None:
    found = found.asnumpy()
    assert found.dtype == expected.dtype and np.array_equal(found, expected), (found, expected)


def values(dtype: str, *shape: int) -> Any:
    return np.random.default_rng(RANK).uniform(0, 9, shape).astype(dtype)


def check_collectives() -> None:
    """The bits of horovod.numpy."""
    for dtype in DTYPES:
        own = values(dtype, 4, 3)
        for op in (hvd.Average, hvd.Sum, hvd.Min, hvd.Max, hvd.Product):
            array = mx.nd.array(own, dtype=dtype)
            expected = hvn.allreduce(own, op=op)
            same(hvd.allreduce(array, op=op, priority=3), expected)
            same(array, own)
            assert hvd.allreduce_(array, op=op) is array
            same(array, expected)
        array = mx.nd.array(own, dtype=dtype)
        same(hvd.broadcast(array, 1), hvn.broadcast(own, 1))
        same(hvd.allgather(array), hvn.allgather(own))
        same(hvd.allgather(array[: RANK + 1]), hvn.allgather(own[: RANK + 1]))
        same(hvd.reducescatter(array, op=hvd.Sum), hvn.reducescatter(own, op=hvd.Sum))
        assert hvd.broadcast_(array, 1) is array
        same(array, hvn.broadcast(own, 1))
    scaled = hvd.allreduce(mx.nd.ones((2,)), prescale_factor=0.5, postscale_factor=4.0, op=hvd.Sum)
    same(scaled, np.full(2, 2.0 * SIZE, np.float32))


def check_groups() -> None:
    own = [values("float32", 2), values("int32", 3, 2)]
    arrays = [mx.nd.array(each, dtype=each.dtype) for each in own]
    for found, expected in zip(hvd.grouped_allreduce(arrays), hvn.grouped_allreduce(own), strict=True):
        same(found, expected)
    for found, expected in zip(hvd.grouped_allgather(arrays), hvn.grouped_allgather(own), strict=True):
        same(found, expected)
    scattered = hvd.grouped_reducescatter(arrays[:1], op=hvd.Sum)
    same(scattered[0], hvn.reducescatter(own[0], op=hvd.Sum))
    expected = hvn.grouped_allreduce(own, op=hvd.Sum)
    assert all(a is b for a, b in zip(hvd.grouped_allreduce_(arrays, op=hvd.Sum), arrays, strict=True))
    for array, total in zip(arrays, expected, strict=True):
        same(array, total)


def check_alltoall() -> None:
    own = values("float32", 2 * SIZE, 2)
    array = mx.nd.array(own)
    same(hvd.alltoall(array), hvn.alltoall(own))
    splits = [SIZE + 1] + [1] * (SIZE - 1)
    expected, counts = hvn.alltoall(own, splits)
    for given in (splits, mx.nd.array(splits, dtype="int32")):
        found, received = hvd.alltoall(array, splits=given)
        same(found, expected)
        same(received, counts)
    with raises(ValueError, "int32"):
        hvd.alltoall(array, splits=mx.nd.array(splits))


def check_numpy_arrays_of_mxnet() -> None:
    mx.npx.set_np()
    try:
        total = hvd.allreduce(mx.np.array(3.0 + RANK), op=hvd.Sum)
        assert isinstance(total, mx.np.ndarray) and total.shape == ()
        assert float(total) == 3.0 * SIZE + SIZE * (SIZE - 1) / 2
        none = hvd.allgather(mx.np.zeros((0, 2)))
        assert isinstance(none, mx.np.ndarray) and none.shape == (0, 2)
        assert hvd.allgather(mx.np.ones((RANK, 2))).shape == (SIZE * (SIZE - 1) // 2, 2)
        flags = hvd.allreduce(mx.np.array([RANK == 0, True]), op=hvd.Min)
        assert flags.asnumpy().tolist() == [SIZE == 1, True]
    finally:
        mx.npx.reset_np()


def check_pending_work() -> None:
    """What MXNet still has to do with an array is done before, on it and with it."""
    for _ in range(5):
        array = mx.nd.ones((300, 300))
        for _ in range(10):
            array = mx.nd.dot(array, array) / 300
        later = mx.nd.dot(array, array)  # reads it
        hvd.allreduce_(array, op=hvd.Sum)
        assert float(later[0, 0].asscalar()) == 300 and float(array[0, 0].asscalar()) == SIZE


def check_errors() -> None:
    with raises(ValueError, "op or average"):
        hvd.allreduce(mx.nd.ones(1), average=True, op=hvd.Sum)
    with raises(ValueError, "array of MXNet", "list"):
        hvd.allreduce([1.0])
    with raises(ValueError, "row_sparse", "tostype"):
        hvd.allreduce(mx.nd.ones((2, 2)).tostype("row_sparse"))
    with raises(hvd.HorovodInternalError, "shape"):
        hvd.allreduce(mx.nd.ones(1 + RANK), name="other shapes")
    same(hvd.allreduce(mx.nd.ones(2)), np.ones(2, np.float32))
    with raises(ValueError, "params must be"):
        hvd.broadcast_parameters([mx.nd.ones(1)])
    parameter = gluon.Parameter("several", shape=(2,))
    parameter.initialize(ctx=[mx.cpu(0), mx.cpu(1)])
    with raises(ValueError, "several", "2 devices"):
        hvd.broadcast_parameters({"several": parameter})
    with raises(ValueError, "gradient_predivide_factor"):
        hvd.DistributedTrainer([], "sgd", gradient_predivide_factor=0.0)


def check_objects_and_process_sets() -> None:
    assert hvd.broadcast_object({"rank": RANK}, root_rank=SIZE - 1) == {"rank": SIZE - 1}
    assert hvd.allgather_object(RANK) == list(range(SIZE))
    alone = hvd.add_process_set([1])
    if RANK == 1:
        same(hvd.allreduce(mx.nd.ones(2), op=hvd.Sum, process_set=alone), np.ones(2, np.float32))
    hvd.remove_process_set(alone)


ROWS, BATCH, STEPS = 72, 4, 6
_random = np.random.default_rng(5)
X = _random.normal(size=(ROWS, 5)).astype(np.float32)
Y = _random.normal(size=(ROWS, 1)).astype(np.float32)
LOSS = gluon.loss.L2Loss()


def network(seed: int, inputs: int = 0) -> Any:
    mx.random.seed(seed)
    net = gluon.nn.Sequential(prefix="net_")
    with net.name_scope():
        net.add(gluon.nn.Dense(8, "tanh", in_units=inputs), gluon.nn.Dense(1, in_units=8 if inputs else 0))
    net.initialize(mx.init.Xavier())
    return net


def weights(net: Any) -> Any:
    params = net.collect_params()
    return np.concatenate([params[name].data().asnumpy().ravel() for name in sorted(params.keys())])


def train(net: Any, trainer: Any, rank: int, ranks: int, clip: float | None = None) -> Any:
    for step in range(STEPS):
        rows = slice(step * BATCH * SIZE + rank, (step + 1) * BATCH * SIZE, ranks)
        x, y = mx.nd.array(X[rows]), mx.nd.array(Y[rows])
        with autograd.record():
            loss = LOSS(net(x), y)
        loss.backward()
        if clip is None:
            trainer.step(len(x))
        else:
            trainer.allreduce_grads()
            gluon.utils.clip_global_norm([p.grad() for p in net.collect_params().values()], clip * len(x))
            trainer.update(len(x))
    return weights(net)


def alone(optimizer: str, options: dict[str, Any], clip: float | None = None) -> Any:
    """One process with the whole batches, from rank 0's weights."""
    net = network(0, inputs=5)
    return train(net, gluon.Trainer(net.collect_params(), optimizer, options), 0, 1, clip)


def together(net: Any, trainer: Any, clip: float | None = None) -> Any:
    found = train(net, trainer, RANK, SIZE, clip)
    assert len({each.tobytes() for each in hvd.allgather_object(found)}) == 1
    return found


SGD: dict[str, Any] = {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.01}


def check_trainer() -> None:
    for optimizer, options in (("sgd", SGD), ("adam", {"learning_rate": 0.05})):
        for more in ({}, {"num_groups": 2}, {"gradient_predivide_factor": 2.0}):
            net = network(RANK, inputs=5)
            params = net.collect_params()
            hvd.broadcast_parameters(params)
            trainer = hvd.DistributedTrainer(params, optimizer, dict(options), **more)
            np.testing.assert_allclose(
                together(net, trainer), alone(optimizer, options), rtol=1e-4, atol=1e-6
            )


def check_trainer_clips_what_is_combined() -> None:
    net = network(RANK, inputs=5)
    hvd.broadcast_parameters(net.collect_params())
    trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", dict(SGD))
    np.testing.assert_allclose(together(net, trainer, 0.1), alone("sgd", SGD, 0.1), rtol=1e-4, atol=1e-6)


def check_compression() -> None:
    net = network(RANK, inputs=5)
    hvd.broadcast_parameters(net.collect_params())
    trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", dict(SGD), compression=hvd.Compression.fp16)
    np.testing.assert_allclose(together(net, trainer), alone("sgd", SGD), rtol=0.05, atol=0.01)
    integers = mx.nd.ones(2, dtype="int32")
    assert hvd.Compression.fp16.compress(integers)[0] is integers


def check_deferred_initialization() -> None:
    """The shapes are known at the first forward pass, in which rank 0's weights come to all."""
    net = network(RANK)
    params = net.collect_params()
    hvd.broadcast_parameters(params)
    trainer = hvd.DistributedTrainer(params, "sgd", dict(SGD))
    with raises(gluon.parameter.DeferredInitializationError):
        weights(net)
    net(mx.nd.array(X[:1]))
    expected = network(0)
    expected(mx.nd.array(X[:1]))
    assert np.array_equal(weights(net), weights(expected))
    before = weights(net)
    together(net, trainer)
    if RANK == 0:  # no more than once: this is for one rank only
        net.initialize(mx.init.Zero(), force_reinit=True)
        assert not np.array_equal(weights(net), before)


def check_hybridized_and_states() -> None:
    """A compiled net with deferred shapes and running means; a training that goes on from files."""

    def start() -> tuple[Any, Any]:
        mx.random.seed(RANK)
        net = gluon.nn.HybridSequential()
        net.add(gluon.nn.Dense(8), gluon.nn.BatchNorm(), gluon.nn.Activation("relu"), gluon.nn.Dense(1))
        net.initialize(mx.init.Xavier())
        net.hybridize()
        params = net.collect_params()
        hvd.broadcast_parameters(params)
        return net, hvd.DistributedTrainer(params, "adam", {"learning_rate": 0.05})

    def learned(net: Any) -> list[Any]:
        """In the order of the layers, as names are others in each net."""
        params = net.collect_params().values()
        return [param.data().asnumpy() for param in params if param.grad_req != "null"]

    net, trainer = start()
    train(net, trainer, RANK, SIZE)
    with tempfile.TemporaryDirectory() as directory:
        weights, states = Path(directory, "weights"), Path(directory, "states")
        net.save_parameters(str(weights))
        trainer.save_states(str(states))
        train(net, trainer, RANK, SIZE)
        again, its_trainer = start()
        again.load_parameters(str(weights))
        its_trainer.load_states(str(states))
        train(again, its_trainer, RANK, SIZE)
    for one, other in zip(learned(net), learned(again), strict=True):
        assert np.array_equal(one, other)
        assert len({each.tobytes() for each in hvd.allgather_object(one)}) == 1


def check_two_trainers() -> None:
    nets = [network(RANK + 10 * number, inputs=5) for number in range(2)]
    trainers = []
    for number, net in enumerate(nets):
        hvd.broadcast_parameters(net.collect_params(), prefix=f"{number}.")
        trainers.append(hvd.DistributedTrainer(net.collect_params(), "sgd", dict(SGD), prefix=f"{number}."))
    results = [together(net, trainer) for net, trainer in zip(nets, trainers, strict=True)]
    assert not np.array_equal(*results)


def check_trainer_unwraps_an_optimizer() -> None:
    net = network(RANK, inputs=5)
    hvd.broadcast_parameters(net.collect_params())
    optimizer = hvd.DistributedOptimizer(mx.optimizer.create("sgd", **SGD))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer = hvd.DistributedTrainer(net.collect_params(), optimizer)
    assert any("within the DistributedOptimizer" in str(each.message) for each in caught)
    np.testing.assert_allclose(together(net, trainer), alone("sgd", SGD), rtol=1e-4, atol=1e-6)


def check_optimizer() -> None:
    inner = mx.optimizer.create("sgd", **SGD)
    optimizer = hvd.DistributedOptimizer(inner)
    assert isinstance(optimizer, mx.optimizer.Optimizer) and optimizer.learning_rate == 0.1
    optimizer.set_learning_rate(0.2)
    optimizer.rescale_grad = 0.5
    assert inner.lr == 0.2 and inner.rescale_grad == 0.5 and optimizer.momentum == 0.9
    optimizer.lr, optimizer.rescale_grad = 0.1, 1.0
    net = network(RANK, inputs=5)
    hvd.broadcast_parameters(net.collect_params())
    trainer = gluon.Trainer(net.collect_params(), optimizer, kvstore=None)
    np.testing.assert_allclose(together(net, trainer), alone("sgd", SGD), rtol=1e-4, atol=1e-6)
    with raises(TypeError, "can't be pickled"):
        import pickle

        pickle.dumps(optimizer)


def check_module() -> None:
    """The older way of MXNet: symbols and mx.mod.Module."""
    output = mx.sym.LinearRegressionOutput(
        mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=1, name="dense"), mx.sym.Variable("y")
    )
    module = mx.mod.Module(output, data_names=("data",), label_names=("y",), context=mx.cpu())
    data = mx.io.NDArrayIter(X[RANK::SIZE], Y[RANK::SIZE], BATCH, label_name="y")
    module.bind(data.provide_data, data.provide_label)
    mx.random.seed(RANK)
    module.init_params(mx.init.Uniform(1.0))
    arguments, others = module.get_params()
    hvd.broadcast_parameters(arguments, prefix="arguments.")
    hvd.broadcast_parameters(others, prefix="others.")
    module.set_params(arguments, others)
    start = arguments["dense_weight"].asnumpy()
    module.init_optimizer(
        kvstore=None, optimizer=hvd.DistributedOptimizer(mx.optimizer.create("sgd", learning_rate=0.05))
    )
    for batch in data:
        module.forward_backward(batch)
        module.update()
    end = module.get_params()[0]["dense_weight"].asnumpy()
    assert not np.array_equal(start, end)
    assert len({each.tobytes() for each in hvd.allgather_object(end)}) == 1


def counted(trainer: Any, net: Any, clip: float | None = None) -> float:
    """The steps of a training, after one that makes it known."""
    train(net, trainer, RANK, SIZE, clip)
    before = hvd.metrics()["steps_total"]
    train(net, trainer, RANK, SIZE, clip)
    return hvd.metrics()["steps_total"] - before


def check_steps_are_counted() -> None:
    """Once, however many weights there are."""
    assert STEPS > 1
    for groups in (0, 2):
        for clip in (None, 0.1):
            net = network(RANK, inputs=5)
            hvd.broadcast_parameters(net.collect_params())
            trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", dict(SGD), num_groups=groups)
            assert counted(trainer, net, clip) == STEPS
    net = network(RANK, inputs=5)
    hvd.broadcast_parameters(net.collect_params())
    optimizer = hvd.DistributedOptimizer(mx.optimizer.create("sgd", **SGD))
    assert counted(gluon.Trainer(net.collect_params(), optimizer, kvstore=None), net) == STEPS
