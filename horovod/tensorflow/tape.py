"""GradientTapes whose gradients are those of all ranks."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod.common.basics import Average
from horovod.common.distributed_options import DistributedOptions, Groups, checked_layers
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow.compression import Compression, Compressor
from horovod.tensorflow.gradient_marks import mark_reduced
from horovod.tensorflow.gradient_reduction import GradientReduction, LocalVariables, checked_groups
from horovod.tensorflow.step_ends import variables_among


class _Distributed:
    """What is added to the class of the user's tape."""

    _reduction: GradientReduction
    _local: LocalVariables
    _given: Any  # the user's tape: there is one recording, which must be stopped once
    _layers: Any = ()
    _ended_step = False  # with what has been recorded: gradients of several losses are of one step

    @property
    def _recording(self) -> bool:
        return bool(self._given._recording)

    @_recording.setter
    def _recording(self, recording: bool) -> None:
        self._given._recording = recording

    def __enter__(self) -> Any:
        self._ended_step = False
        return super().__enter__()  # type: ignore[misc]

    def reset(self) -> None:
        """As the tape's."""
        self._ended_step = False
        super().reset()  # type: ignore[misc]

    def register_local_source(self, source: Any) -> None:
        """Leaves the gradients of a variable on this rank."""
        self._local.add(source)

    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        use_generic_names: bool = False,
        unconnected_gradients: Any = tf.UnconnectedGradients.NONE,
    ) -> Any:
        """The gradients in the structure of `sources`,
        averaged (or what `op` says) over the ranks."""
        gradients = super().gradient(  # type: ignore[misc]
            target, sources, output_gradients, unconnected_gradients=unconnected_gradients
        )
        for layer in self._layers:  # which may have been built since
            for variable in layer.trainable_weights:
                self._local.add(variable)
        flat_sources = tf.nest.flatten(sources)
        reduced = self._local.reduce_others(
            self._reduction,
            tf.nest.flatten(gradients),
            flat_sources,
            use_generic_names,
            ends_step=not self._ended_step,
        )
        # What has no gradient, or a local one, was not reduced.
        shared = [
            source
            for source, gradient in zip(flat_sources, reduced, strict=True)
            if gradient is not None and source not in self._local
        ]
        self._ended_step = self._ended_step or bool(variables_among(shared))
        return tf.nest.pack_sequence_as(sources, mark_reduced(reduced))

    def get_local_and_global_gradients(
        self, target: Any, sources: Any, output_gradients: Any = None, use_generic_names: bool = False
    ) -> tuple[list[tuple[Any, Any]], list[tuple[Any, Any]]]:
        """gradient() as two lists of (source, gradient): the local sources and the others."""
        flat = tf.nest.flatten(sources)
        gradients = self.gradient(target, flat, output_gradients, use_generic_names)
        pairs = list(zip(flat, gradients, strict=True))
        return (
            [pair for pair in pairs if pair[0] in self._local],
            [pair for pair in pairs if pair[0] not in self._local],
        )


def DistributedGradientTape(
    gradtape: Any,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Groups = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """A tape with the recording of `gradtape` whose gradient() reduces over the ranks.

    The arguments are those of hvd.DistributedOptimizer(); local sources are what
    register_local_source() was called with.
    """
    base = type(gradtape)
    tape_class: Any = type(base.__name__, (_Distributed, base), {})
    tape = tape_class.__new__(tape_class)
    vars(tape).update(vars(gradtape), _given=gradtape)
    options = DistributedOptions(
        device_dense=device_dense,
        device_sparse=device_sparse,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        op=op,
        gradient_predivide_factor=gradient_predivide_factor,
        groups=checked_groups(groups, num_groups),
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )
    tape._reduction = GradientReduction("DistributedGradientTape", options)
    tape._local = LocalVariables(options)
    return tape


def PartialDistributedGradientTape(
    gradtape: Any,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Groups = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """DistributedGradientTape() that leaves the gradients of
    `local_layers`, one or several, on each rank."""
    layers = checked_layers(local_layers, tf.keras.layers.Layer)
    tape = DistributedGradientTape(
        gradtape,
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        op,
        gradient_predivide_factor,
        num_groups,
        groups,
        process_set,
        scale_local_gradients,
    )
    tape._layers = layers
    return tape
