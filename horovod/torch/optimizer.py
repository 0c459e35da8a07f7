"""hvd.DistributedOptimizer: an optimizer whose gradients
are combined over the ranks before each step."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn

import torch

from horovod.common import objects
from horovod.common.basics import Adasum, Average
from horovod.common.collectives import check_adasum
from horovod.common.distributed_options import DistributedOptions, check_passes, checked_groups
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.session import for_query
from horovod.common.steps import end_step
from horovod.torch._adasum_step import AdasumStep
from horovod.torch._gradient_reducer import GradientReducer
from horovod.torch._parameter_names import name_parameters, split_evenly, unnamed, with_singles
from horovod.torch.compression import Compression

Closure = Callable[[], Any]
Buckets = list[list[tuple[torch.Tensor, str]]]

# Arguments that programs look at
_ATTRIBUTES = (
    "op",
    "process_set",
    "gradient_predivide_factor",
    "sparse_as_dense",
    "backward_passes_per_step",
)


def DistributedOptimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    compression: Any = Compression.none,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[torch.Tensor]] | None = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """An optimizer like `optimizer`, for the same parameters, that steps with the ranks' combined
    gradients.

    Gradients start to travel during the backward pass; step() waits for them. To look at them in
    between, as gradient clipping and torch.amp.GradScaler do::

        loss.backward()
        optimizer.synchronize()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        with optimizer.skip_synchronize():
            optimizer.step()

    The result is an instance of a new class that derives from the optimizer's own and has its name.
    It goes on with the state that `optimizer` has, which should not be used any more. The arguments
    `op`, `process_set`, `gradient_predivide_factor`, `sparse_as_dense` and
    `backward_passes_per_step` are its attributes, and `_parameter_names` has the name of each
    parameter.

    `named_parameters`: names that match the gradients between ranks; default: the order in the
    optimizer.
    `compression`: hvd.Compression.none, fp16, bf16, or a class with the same two static methods.
    `backward_passes_per_step`: gradients are summed over so many backward passes before they
    travel.
    `op`: hvd.Average, hvd.Sum, or hvd.Adasum, which combines the ranks' updates in place of their
    gradients.
    `gradient_predivide_factor`: f divides by f before the sum and by size/f afterwards; only with
    Average.
    `groups`: how many groups the parameters are split into, or lists of parameters; a group travels
    as one.
    `sparse_as_dense`: reduces sparse gradients as dense ones, which is faster if few rows are
    missing.
    `process_set`: the ranks that combine gradients; others train on their own.

    Not to be pickled or deep-copied: save its state_dict().
    """
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ValueError(f"optimizer must be a torch.optim.Optimizer, got {type(optimizer).__name__}")
    options = DistributedOptions(
        compression=compression,
        backward_passes_per_step=backward_passes_per_step,
        op=op,
        gradient_predivide_factor=gradient_predivide_factor,
        groups=checked_groups(groups, num_groups, torch.Tensor),
        sparse_as_dense=sparse_as_dense,
        process_set=process_set,
    )
    names = name_parameters(optimizer.param_groups, named_parameters)
    session = for_query()  # before anything that does not need hvd.init(), but would be wrong without
    alone = session.place.size == 1
    if op == Adasum and (session.elastic or not alone):  # an elastic job may grow
        check_adasum(process_set)
        return _rebuilt(optimizer, _adasum_class, AdasumStep(names, compression), names, options)
    reducer: GradientReducer | None = None
    # An elastic job may grow, and have this rank in the set in another world: the hooks must be there.
    if session.elastic or (process_set.included() and not alone):
        reducer = GradientReducer(_buckets(names, options, session.elastic), options)
    return _rebuilt(optimizer, _reducing_class, reducer, names, options)


def _buckets(names: dict[torch.Tensor, str], options: DistributedOptions, elastic: bool) -> Buckets:
    parameters, groups, process_set = list(names), options.groups, options.process_set
    if isinstance(groups, int):
        # The order must be the same everywhere, and only the names are.
        order = sorted(names.values())
        if not elastic:  # where a process that joins would ask others that are long past this
            order = objects.broadcast_object(
                [names[parameter] for parameter in parameters],
                root_rank=(process_set.ranks or [0])[0],
                name="DistributedOptimizer.groups",
                process_set=process_set,
            )
        by_name = {name: parameter for parameter, name in names.items()}
        if set(order) != set(by_name):
            raise ValueError("groups: the ranks' optimizers have parameters of different names")
        chosen = split_evenly([by_name[name] for name in order], groups)
    else:
        chosen = with_singles(parameters, groups or ())
    return [[(parameter, names[parameter]) for parameter in bucket] for bucket in chosen]


def _rebuilt(
    optimizer: torch.optim.Optimizer,
    make_class: Callable[[type[torch.optim.Optimizer]], type[Any]],
    worker: object,
    names: dict[torch.Tensor, str],
    options: DistributedOptions,
) -> Any:
    """An instance of the class that `make_class` derives from the optimizer's, with all that
    belongs to it.

    Not made by the constructor: nobody knows what arguments that takes and what it does to the
    state.
    """
    base = type(optimizer)
    if hasattr(base, "_horovod_base"):
        base = base._horovod_base  # distributed already: wrapped anew
    derived = make_class(base)
    derived.__name__, derived.__qualname__ = base.__name__, base.__qualname__
    derived.__doc__ = base.__doc__
    derived.__module__ = __name__  # tools find out by str(type(optimizer)) that it is a distributed one
    derived._horovod_base = base
    result: Any = object.__new__(derived)
    result.__dict__.update(optimizer.__dict__)
    # A learning-rate scheduler may have put a `step` there that steps the old one.
    result.__dict__.pop("step", None)
    result.param_groups = list(optimizer.param_groups)
    result._horovod = worker
    result._should_synchronize = True
    result._synchronized = False
    result._parameter_names = names
    for attribute in _ATTRIBUTES:
        setattr(result, attribute, getattr(options, attribute))
    return result


def _named_last_group(optimizer: Any) -> dict[torch.Tensor, str]:
    """Gives names to the parameters of the group that was added last."""
    number = len(optimizer.param_groups) - 1
    parameters = optimizer.param_groups[-1]["params"]
    names = {parameter: unnamed(number, index) for index, parameter in enumerate(parameters)}
    optimizer._parameter_names.update(names)
    return names


def _refuse_to_pickle(self: Any, protocol: Any = None) -> NoReturn:
    raise TypeError(
        f"a distributed {type(self).__name__} can't be pickled or copied: save its state_dict(), load that "
        "into a new optimizer and pass it to hvd.DistributedOptimizer()"
    )


def _reducing_class(base: type[Any]) -> type[Any]:
    """A class derived from `base` that steps with combined gradients."""

    class Distributed(base):  # type: ignore[misc]
        _horovod: GradientReducer | None
        _should_synchronize: bool
        _synchronized: bool
        backward_passes_per_step: int

        def synchronize(self) -> None:
            """Waits until every gradient is the combined one."""
            if self._horovod is not None:
                self._horovod.synchronize()
            self._synchronized = True

        @contextlib.contextmanager
        def skip_synchronize(self) -> Iterator[None]:
            """In this context step() takes the gradients as they are, after a synchronize()."""
            self._should_synchronize = False
            try:
                yield
            finally:
                self._should_synchronize = True

        # Marked by wraps() as one that runs the step hooks, so that only the base's step() does.
        @functools.wraps(base.step)
        def step(self, closure: Closure | None = None, *args: Any, **kwargs: Any) -> Any:
            if closure is not None:
                # The optimizer looks at the gradients after each call of the closure.
                args = (_synchronizing(self, closure), *args)
            elif self._should_synchronize:
                if self._synchronized:
                    warnings.warn(
                        # Programs look for the beginning of this.
                        "optimizer.step() called without optimizer.skip_synchronize() after synchronize(): "
                        "it combines the gradients once more; to avoid that, use "
                        "`with optimizer.skip_synchronize(): optimizer.step()`",
                        stacklevel=2,
                    )
                self.synchronize()
            elif self._horovod is not None and self._horovod.in_flight:
                raise AssertionError(
                    "step() within skip_synchronize(), but gradients are still on their way; "
                    "call optimizer.synchronize() before"
                )
            self._synchronized = False
            result = super().step(*args, **kwargs)
            end_step(id(self))
            return result

        @functools.wraps(base.zero_grad)
        def zero_grad(self, *args: Any, **kwargs: Any) -> Any:
            if self._horovod is not None:
                if self._horovod.failed:
                    self._horovod.clear_up()
                elif self._horovod.in_flight:
                    raise AssertionError(
                        "zero_grad() after backward() and before step() or synchronize(): the gradients are "
                        "still being combined; call it after step()"
                    )
                self._horovod.restart()
            result = super().zero_grad(*args, **kwargs)
            if self._horovod is not None:
                self._horovod.zeroed()
            return result

        @functools.wraps(base.load_state_dict)
        def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
            if self._horovod is not None:
                self._horovod.forget()
            self._synchronized = False
            return super().load_state_dict(*args, **kwargs)

        @functools.wraps(base.add_param_group)
        def add_param_group(self, param_group: dict[str, Any]) -> Any:
            result = super().add_param_group(param_group)
            for named in _named_last_group(self).items():
                if self._horovod is not None:
                    self._horovod.add([named])
            return result

        def set_backward_passes_per_step(self, passes: int) -> None:
            """Changes the number of backward passes whose
            gradients are summed before they travel."""
            check_passes(passes)
            self.backward_passes_per_step = passes
            if self._horovod is not None:
                self._horovod.set_passes_per_step(passes)

        __reduce_ex__ = _refuse_to_pickle

    return Distributed


def _synchronizing(optimizer: Any, closure: Closure) -> Closure:
    """The closure, followed by the wait for its gradients.

    L-BFGS decides by the loss how often it calls the closure: it must see the same value on all
    ranks.
    """

    def combined() -> Any:
        loss = closure()
        if optimizer._should_synchronize:
            optimizer.synchronize()
            optimizer._synchronized = False
        reducer = optimizer._horovod
        if reducer is not None and isinstance(optimizer, torch.optim.LBFGS) and loss is not None:
            loss = reducer.combine_loss(loss)
        return loss

    return combined


def _adasum_class(base: type[Any]) -> type[Any]:
    """A class derived from `base` that combines the
    ranks' updates of the parameters with Adasum."""

    class Distributed(base):  # type: ignore[misc]
        _horovod: AdasumStep
        backward_passes_per_step: int

        @functools.wraps(base.step)
        def step(self, *args: Any, **kwargs: Any) -> Any:
            result = self._horovod.run(functools.partial(super().step, *args, **kwargs))
            end_step(id(self))
            return result

        def synchronize(self) -> None:
            """Does nothing: gradients stay local, step() combines the updates."""

        def skip_synchronize(self) -> NoReturn:
            raise AssertionError(
                "op=hvd.Adasum combines the updates, not the gradients: there is nothing to skip"
            )

        @functools.wraps(base.add_param_group)
        def add_param_group(self, param_group: dict[str, Any]) -> Any:
            result = super().add_param_group(param_group)
            self._horovod.names.update(_named_last_group(self))
            return result

        def set_backward_passes_per_step(self, passes: int) -> None:
            """Only checked: gradients are local, so nothing
            depends on the number of backward passes."""
            check_passes(passes)
            self.backward_passes_per_step = passes

        __reduce_ex__ = _refuse_to_pickle

    return Distributed
