"""What program_steps.py trains: one weight, by the optimizer and the elastic state of each framework.

Its gradient is 1 on every rank and the learning rate 1, so that it is minus the number of steps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np


class Trained(ABC):
    """`run` is the framework's decorator, `more` are further attributes of the state."""

    run: Any
    state: Any

    def step(self, size: int) -> None:
        """One step of a world of so many, committed."""
        self._count(size)
        self._update()
        self.state.commit()

    def reached(self) -> dict[str, Any]:
        """What a note tells."""
        return {"step": self.state.step, "history": list(self.state.history), "weight": self._weight()}

    def _count(self, size: int) -> None:
        self.state.step += 1
        if not self.state.history or self.state.history[-1] != size:
            self.state.history.append(size)

    @abstractmethod
    def _update(self) -> None: ...

    @abstractmethod
    def _weight(self) -> float: ...


class WithNumpy(Trained):
    def __init__(self, **more: Any) -> None:
        import horovod.numpy as hvd
        from horovod.common import elastic

        self.run = elastic.run
        self.state = elastic.ObjectState(
            hvd.broadcast_object, hvd.rank, step=0, history=[], array=np.zeros(1), **more
        )

    def _update(self) -> None:
        self.state.array -= 1

    def _weight(self) -> float:
        return float(self.state.array[0])


class WithTorch(Trained):
    def __init__(self, **more: Any) -> None:
        import torch

        import horovod.torch as hvd

        torch.set_num_threads(1)
        self._model = torch.nn.Linear(1, 1, bias=False)
        torch.nn.init.zeros_(self._model.weight)
        self._input = torch.ones(1, 1)
        optimizer = torch.optim.SGD(self._model.parameters(), lr=1.0)
        self._optimizer: Any = hvd.DistributedOptimizer(optimizer, self._model.named_parameters())
        self.run = hvd.elastic.run
        self.state = hvd.elastic.TorchState(self._model, self._optimizer, step=0, history=[], **more)

    def _update(self) -> None:
        self._optimizer.zero_grad()
        self._model(self._input).sum().backward()
        self._optimizer.step()

    def _weight(self) -> float:
        return float(self._model.weight.item())


class _WithModel(Trained):
    """A model of Keras."""

    def __init__(self) -> None:
        import keras

        layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
        self._model = keras.Sequential([keras.Input((1,)), layer])

    def _weight(self) -> float:
        return float(np.asarray(self._model.get_weights()[0]).item())


class WithTensorFlow(_WithModel):
    def __init__(self, **more: Any) -> None:
        import keras
        import tensorflow as tf

        import horovod.tensorflow as hvd

        super().__init__()
        optimizer = keras.optimizers.SGD(1.0)
        self.run = hvd.elastic.run
        self.state = hvd.elastic.TensorFlowKerasState(self._model, optimizer, step=0, history=[], **more)

        @tf.function  # type: ignore[untyped-decorator]
        def update() -> None:
            with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
                loss = tf.reduce_sum(self._model(tf.ones((1, 1))))
            weights = self._model.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))

        self._update = update  # type: ignore[method-assign]

    def _update(self) -> None:
        raise NotImplementedError


class WithKeras(_WithModel):
    """Each step is a fit(), which commits by the callback."""

    def __init__(self, **more: Any) -> None:
        import keras

        import horovod.keras as hvd

        super().__init__()
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0))
        self._model.compile(optimizer=optimizer, loss=lambda _, found: found)
        self.run = hvd.elastic.run
        self.state = hvd.elastic.KerasState(self._model, step=0, history=[], **more)
        self._commit = hvd.elastic.CommitStateCallback(self.state)
        self._lambda = keras.callbacks.LambdaCallback

    def step(self, size: int) -> None:
        one = np.ones((1, 1), "float32")
        count = self._lambda(on_train_batch_end=lambda batch, logs: self._count(size))
        self._model.fit(one, one, verbose=0, callbacks=[count, self._commit])

    def _update(self) -> None:
        raise NotImplementedError


class WithJax(Trained):
    def __init__(self, **more: Any) -> None:
        import jax
        import jax.numpy as jnp
        import optax

        import horovod.jax as hvd

        optimizer = hvd.DistributedOptimizer(optax.sgd(1.0))
        weight = jnp.zeros(1)
        self.run = hvd.elastic.run
        self.state = hvd.elastic.JaxState(
            weight=weight, optimizer=optimizer.init(weight), step=0, history=[], **more
        )

        @jax.jit
        def update(weight: Any, state: Any) -> Any:
            changes, state = optimizer.update(jax.grad(jnp.sum)(weight), state)
            return optax.apply_updates(weight, changes), state

        self._compiled = update

    def _update(self) -> None:
        self.state.weight, self.state.optimizer = self._compiled(self.state.weight, self.state.optimizer)

    def _weight(self) -> float:
        return float(self.state.weight[0])


TRAINED = {
    "numpy": WithNumpy,
    "torch": WithTorch,
    "tensorflow": WithTensorFlow,
    "keras": WithKeras,
    "jax": WithJax,
}
