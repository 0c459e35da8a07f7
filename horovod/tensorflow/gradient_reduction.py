"""The reduction of a step's gradients: what the tape and
the optimizers of TF1 and Keras have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from horovod.common import distributed_options
from horovod.common.distributed_options import DistributedOptions, Groups
from horovod.common.session import state
from horovod.tensorflow import ops, place_ops, step_ends
from horovod.tensorflow.reductions import allreduce, allreduce_dense, divide_by_size, grouped_allreduce
from horovod.tensorflow.util import _executing_eagerly, device, elastic, tf_variable
from horovod.tensorflow.xla import compiling, refusal

# From this size on it pays to send gradients while others are being computed. The threads that a
# small one wakes up on each rank take more time than its sum, time that is missing where ranks
# compute on all cores.
_WORTH_AN_OPERATION = 1 << 20  # bytes


def checked_groups(groups: Any, num_groups: int) -> Groups:
    """See distributed_options."""
    return distributed_options.checked_groups(groups, num_groups, tf.Variable, tf_variable)


@dataclass(frozen=True)
class GradientReduction:
    """How to reduce gradients, under which name; calling it does so."""

    name: str
    options: DistributedOptions

    def __call__(
        self,
        gradients: Sequence[Any],
        variables: Sequence[Any] | None = None,
        use_generic_names: bool = False,
        ends_step: bool = True,
    ) -> list[Any]:
        """The reduced gradients in the same order.

        None stays None; IndexedSlices stay sparse unless asked.

        `variables` are those that the gradients belong to; needed if `groups` names variables.
        Every rank must have None at the same places.

        `ends_step`: this is what a step of the training needs it for, if there are variables.
        """
        gradients = list(gradients)
        present = [i for i, gradient in enumerate(gradients) if gradient is not None]
        if not present:
            return gradients
        inputs = [gradients[i] for i in present]
        owners = None if variables is None else [tf_variable(variables[i]) for i in present]
        for i, owner in enumerate(owners or [None] * len(inputs)):
            if compiling() or (self.options.sparse_as_dense and isinstance(inputs[i], tf.IndexedSlices)):
                inputs[i] = _of_known_shape(inputs[i], owner)
        # By number: the names of gradient tensors depend on shapes and on what else a rank has in
        # its graph.
        prefix = "grad" if use_generic_names else "HorovodAllreduce_grad"
        names = [f"{prefix}_{i}" for i in present]
        # With the slash it is not within the scopes around, which may differ from rank to rank.
        scope = f"{self.name}_Allreduce/" if use_generic_names else f"{self.name}_Allreduce"

        def reduce() -> list[Any]:
            with tf.name_scope(scope):
                return self._reduce(inputs, owners, names)

        for i, value in zip(present, self._where_needed(reduce, inputs), strict=True):
            gradients[i] = value
        return step_ends.ending(step_ends.kind_of(self.name, variables) if ends_step else 0, gradients)

    def _where_needed(self, reduce: Callable[[], list[Any]], inputs: list[Any]) -> list[Any]:
        """Without other ranks in the set the gradients stay as they are."""
        process_set = self.options.process_set
        number = ops.number_of(process_set)
        if not elastic():
            if state.session is None:  # nobody knows yet who is in it, and the operation says so
                return reduce()
            return reduce() if process_set.included() and (process_set.size() or 0) > 1 else inputs
        if compiling():  # which can't ask; of all ranks, those of the moment, each is one
            if number != 0:
                raise refusal("in an elastic job, a process set")
            return reduce()
        # Negative if there is no such set among the ranks of the moment: then size_op() says so.
        included = tf.not_equal(place_ops.process_set_included_op(number), 0)
        if _executing_eagerly():
            return reduce() if included and place_ops.size_op(number) > 1 else inputs

        def alone() -> list[Any]:
            return [tf.nest.map_structure(tf.identity, value, expand_composites=True) for value in inputs]

        def member() -> list[Any]:
            return list(tf.cond(place_ops.size_op(number) > 1, reduce, alone))

        return list(tf.cond(included, member, alone))

    def _reduce(self, inputs: list[Any], owners: list[Any] | None, names: list[str]) -> list[Any]:
        results = list(inputs)
        # Gradients that all ranks know alike come in the same order on all of them; users' groups need not.
        # A thread that stays keeps the engine's from listening for a moment, which others would wait for.
        known = (
            _bytes(*pair) is not None for pair in zip(inputs, owners or [None] * len(inputs), strict=True)
        )
        stays = self.options.groups is None and not _executing_eagerly() and all(known)
        for group in self._partition(inputs, owners):
            if len(group) == 1 and self.options.groups is None:
                (i,) = group
                if stays:
                    (results[i],) = self._reduce_dense([inputs[i]], name=names[i], stays=True)
                else:
                    results[i] = allreduce(inputs[i], name=names[i], **self._arguments(inputs[i]))
                continue
            for sparse in (False, True):
                # Factors do not go with slices, which have no sum that could overflow.
                members = [i for i in group if isinstance(inputs[i], tf.IndexedSlices) == sparse]
                if not members:
                    continue
                values = [inputs[i] for i in members]
                name = f"{names[members[0]]}_to_{members[-1]}"
                if sparse:
                    reduced = grouped_allreduce(values, name=name, **self._arguments(values[0]))
                else:
                    reduced = self._reduce_dense(values, name=name, stays=stays)
                for i, value in zip(members, reduced, strict=True):
                    results[i] = value
        return results

    def _reduce_dense(self, values: list[Any], **arguments: Any) -> list[Any]:
        options = self.options
        with device(options.device_dense):
            return allreduce_dense(
                values,
                options.compression,
                op=options.op,
                process_set=options.process_set,
                **options.factors(),
                **arguments,
            )

    def _arguments(self, example: Any) -> dict[str, Any]:
        options = self.options
        return {
            "device_dense": options.device_dense,
            "device_sparse": options.device_sparse,
            "compression": options.compression,
            "op": options.op,
            "process_set": options.process_set,
            **({} if isinstance(example, tf.IndexedSlices) else options.factors()),
        }

    def _partition(self, inputs: list[Any], owners: list[Any] | None) -> Iterable[Sequence[int]]:
        """Which gradients travel together. The same on all ranks."""
        groups = self.options.groups
        if groups is None:
            # In a graph they go as they come. Eagerly they are all there, and waiting for one after
            # another would take much longer; so it would in a compiled function.
            at_once = _executing_eagerly() or compiling()
            return [range(len(inputs))] if at_once else _as_they_come(inputs, owners)
        if owners is None and not isinstance(groups, int):
            raise ValueError("groups=<lists of variables> needs to know the variables of the gradients")
        return distributed_options.partition(owners or inputs, groups, tf_variable)


def _as_they_come(inputs: list[Any], owners: list[Any] | None) -> list[list[int]]:
    """Groups of neighbours, as neighbours become ready soon
    after each other, and the last ones first."""
    groups: list[list[int]] = []
    group: list[int] = []  # still too small
    size = 0
    for i in reversed(range(len(inputs))):
        bytes_here = _bytes(inputs[i], None if owners is None else owners[i])
        if bytes_here is None:
            groups.append([i])
            continue
        group.insert(0, i)
        size += bytes_here
        if size >= _WORTH_AN_OPERATION:
            groups.append(group)
            group, size = [], 0
    return [*groups, group] if group else groups


def _bytes(gradient: Any, owner: Any) -> int | None:
    """The size of a gradient, if all ranks know it alike: of
    tensors that are no variables they may not."""
    if isinstance(gradient, tf.IndexedSlices) or not isinstance(owner, tf.Variable):
        return None
    return (
        int(owner.shape.num_elements()) * int(gradient.dtype.size) if owner.shape.is_fully_defined() else None
    )


def _of_known_shape(gradient: Any, owner: Any) -> Any:
    """A gradient as XLA needs it: a tensor with the shape of its variable.

    How many slices there are depends on a rank's batch, and so may what TensorFlow knows of a
    shape; and it reorders the products of an optimizer, and so rounds, by what it knows.
    """
    shape = tf.TensorShape(None if owner is None else owner.shape)
    if isinstance(gradient, tf.IndexedSlices) and shape.is_fully_defined():
        gradient = tf.IndexedSlices(gradient.values, gradient.indices, tf.constant(shape.as_list(), tf.int64))
    return tf.ensure_shape(tf.convert_to_tensor(gradient), shape)


class LocalVariables:
    """Variables whose gradients are not reduced, for parts
    of a model that differ from rank to rank."""

    def __init__(self, options: DistributedOptions) -> None:
        self._process_set = options.process_set
        self._scale = options.scale_local_gradients
        self._variables: dict[int, Any] = {}  # keeps them alive, so that an id stays theirs

    def add(self, variable: Any) -> None:
        """Makes a variable local."""
        inner = tf_variable(variable)
        self._variables[id(inner)] = inner

    def __contains__(self, variable: object) -> bool:
        return id(tf_variable(variable)) in self._variables

    def scaled(self, gradient: Any) -> Any:
        """A local gradient; if asked to, divided by the number of ranks, as if others had zeros."""
        if gradient is None or not self._scale:
            return gradient
        if isinstance(gradient, tf.IndexedSlices):
            values = divide_by_size(gradient.values, self._process_set)
            return tf.IndexedSlices(values, gradient.indices, dense_shape=gradient.dense_shape)
        return divide_by_size(gradient, self._process_set)

    def reduce_others(
        self,
        reduction: GradientReduction,
        gradients: Sequence[Any],
        variables: Sequence[Any],
        use_generic_names: bool = False,
        ends_step: bool = True,
    ) -> list[Any]:
        """All gradients in order: the local ones scaled, the others reduced."""
        shared = [i for i, variable in enumerate(variables) if variable not in self]
        results = list(gradients)
        for i in set(range(len(results))) - set(shared):
            results[i] = self.scaled(results[i])
        reduced = reduction(
            [gradients[i] for i in shared], [variables[i] for i in shared], use_generic_names, ends_step
        )
        for i, value in zip(shared, reduced, strict=True):
            results[i] = value
        return results
