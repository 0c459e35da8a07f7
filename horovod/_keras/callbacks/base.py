"""What the callbacks have in common."""

from __future__ import annotations

from typing import Any

from horovod._keras import flavours
from horovod._keras.without_xla import leave_xla_out

Callback: Any = object  # stands for the Keras's own class, which comes next


class HorovodCallback(Callback):  # type: ignore[misc]
    """Knows which Keras it is for."""

    keras: Any  # the module; given by the classes that users see
    model: Any
    params: dict[str, Any]

    def set_model(self, model: Any) -> None:
        """Keras calls it. ValueError if the model is not one of the callback's Keras."""
        if model is not None and not isinstance(model, self.keras.Model):
            raise ValueError(
                f"this {type(self).__name__} is for legacy Keras (tf_keras), but the model is of Keras 3: "
                "use horovod.keras, or horovod.tensorflow.keras without TF_USE_LEGACY_KERAS=1"
                if self.is_legacy
                else f"this {type(self).__name__} is for Keras 3, but the model is of legacy Keras "
                "(tf_keras): set TF_USE_LEGACY_KERAS=1 and use horovod.tensorflow.keras"
            )
        super().set_model(model)
        if model is not None and not self.is_legacy:  # which compiles only if it is told to
            leave_xla_out(self.keras, model)

    @property
    def is_legacy(self) -> bool:
        """Whether it is for legacy Keras."""
        return flavours.is_legacy(self.keras)
