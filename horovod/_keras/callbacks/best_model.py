"""The best model so far."""

from __future__ import annotations

from typing import Any

from horovod._keras.callbacks.base import HorovodCallback

_UNSET = "horovod-best-model-filepath-is-not-set"


class BestModel(HorovodCallback):
    """keras.callbacks.ModelCheckpoint with save_best_only. Set `filepath` before training."""

    filepath: Any

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        mode: str = "auto",
        save_freq: str | int = "epoch",
        save_weights_only: bool = False,
    ) -> None:
        super().__init__(
            # Keras wants a path with one of these endings, and takes no None.
            filepath=_UNSET + (".weights.h5" if save_weights_only else ".keras"),
            monitor=monitor,
            verbose=verbose,
            save_best_only=True,
            save_weights_only=save_weights_only,
            mode=mode,
            save_freq=save_freq,
        )

    def on_train_begin(self, logs: Any = None) -> None:
        """ValueError if there is no path yet."""
        if str(self.filepath).startswith(_UNSET):
            raise ValueError(
                f"set the filepath of {type(self).__name__} before training: callback.filepath = ..."
            )
        super().on_train_begin(logs)
