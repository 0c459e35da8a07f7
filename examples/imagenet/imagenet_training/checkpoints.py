"""Checkpoints, on rank 0."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import tensorflow as tf

import horovod.tensorflow as hvd
from imagenet_training.trainer import Trainer

KEEP = 5
NAME = "model.ckpt"


class Checkpoints:
    """Those in a directory; only rank 0 touches it."""

    def __init__(self, directory: Path | None, trainer: Trainer, clear: bool) -> None:
        self._directory = directory
        self._trainer = trainer
        if directory is None or hvd.rank() != 0:
            return
        try:
            directory.mkdir(parents=True, exist_ok=True)
            # Not the whole directory: the user may have named one with other things in it.
            for file in (*directory.glob(f"{NAME}-*"), directory / "checkpoint") if clear else ():
                file.unlink(missing_ok=True)
        except OSError as error:
            sys.exit(f"--log_dir {directory}: {error.strerror}")
        self._checkpoint = tf.train.Checkpoint(
            step=trainer.step, epoch=trainer.epoch, network=trainer.network, optimizer=trainer.optimizer
        )
        self._manager = tf.train.CheckpointManager(
            self._checkpoint, str(directory), KEEP, step_counter=trainer.step, checkpoint_name=NAME
        )

    def restore(self) -> float | None:
        """Gives all ranks the newest checkpoint. Returns when it was written; None without one."""
        written = None
        if self._directory is not None and hvd.rank() == 0 and self._manager.latest_checkpoint:
            newest = self._manager.latest_checkpoint
            try:
                self._checkpoint.restore(newest).assert_existing_objects_matched()
            except (ValueError, AssertionError, tf.errors.OpError) as error:
                sys.exit(
                    f"{newest} does not fit this model or is damaged ({str(error).splitlines()[0]}). "
                    "Give the flags that it was trained with, another --log_dir, or --clear_log to start over"
                )
            written = Path(newest + ".index").stat().st_mtime
        self._trainer.synchronize()
        answer: float | None = hvd.broadcast_object(written, root_rank=0, name="checkpoint time")
        return answer

    def save(self) -> float:
        """Writes one, and returns the time. All ranks have its state afterwards."""
        self._trainer.merge_statistics()
        if self._directory is not None and hvd.rank() == 0:
            try:
                self._manager.save(checkpoint_number=self._trainer.step)
            except (OSError, tf.errors.OpError) as error:
                sys.exit(
                    f"The checkpoint of step {int(self._trainer.step)} can't be written to "
                    f"{self._directory}: {str(error).splitlines()[0]}. Is the disk full? "
                    "Make room and start again: training goes on from the checkpoint before"
                )
        return time.time()
