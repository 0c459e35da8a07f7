"""A step whose effect on the parameters, not its
gradients, is combined over the ranks with Adasum."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from horovod.common.basics import Adasum
from horovod.torch import ops
from horovod.torch._all_at_once import synchronize_all


class AdasumStep:
    """Runs local steps and replaces each parameter's change by the ranks' combined one."""

    def __init__(self, names: dict[torch.Tensor, str], compression: Any) -> None:
        self.names = dict(names)
        self._compression = compression

    def run(self, step: Callable[[], Any]) -> Any:
        """Calls the local `step` and returns what it does.

        The parameters are put back to where they were before anything is sent: a failure leaves
        them there.
        """
        trained = [parameter for parameter in self.names if parameter.requires_grad]
        with torch.no_grad():
            before = [parameter.detach().clone() for parameter in trained]
        result = step()
        changes: list[torch.Tensor] = []
        contexts: list[Any] = []
        with torch.no_grad():
            for parameter, start in zip(trained, before, strict=True):
                changes.append(parameter - start)
                parameter.copy_(start)

            def submitted() -> Iterator[int]:
                for parameter, change in zip(trained, changes, strict=True):
                    outgoing, context = self._compression.compress(change)
                    contexts.append(context)
                    yield ops.allreduce_async_(outgoing, name=self.names[parameter], op=Adasum)

            # No parameter moves before all have their change.
            combined = synchronize_all(submitted())
            for parameter, change, context in zip(trained, combined, contexts, strict=True):
                parameter.add_(self._compression.decompress(change, context))
        return result
