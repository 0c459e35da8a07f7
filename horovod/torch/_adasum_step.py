"""A step whose effect on the parameters, not its
gradients, is combined over the ranks with Adasum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from horovod.common.basics import Adasum
from horovod.torch import ops


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
        sent: list[tuple[torch.Tensor, int, Any]] = []
        with torch.no_grad():
            for parameter, start in zip(trained, before, strict=True):
                change = parameter - start
                parameter.copy_(start)
                outgoing, context = self._compression.compress(change)
                handle = ops.allreduce_async_(outgoing, name=self.names[parameter], op=Adasum)
                sent.append((parameter, handle, context))
            for parameter, handle, context in sent:
                parameter.add_(self._compression.decompress(ops.synchronize(handle), context))
        return result
