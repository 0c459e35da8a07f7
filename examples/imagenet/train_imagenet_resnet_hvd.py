"""Trains ResNet-50 on ImageNet on any number of processes, then evaluates it:

    horovodrun -np 8 --hostfile hosts python train_imagenet_resnet_hvd.py --data_dir ~/data/tf-imagenet

train.sh and train_synthetic.sh start it. Stopped, it goes on from its newest checkpoint when started again.
"""

from __future__ import annotations

import argparse
import datetime
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from imagenet_training import record_files
from imagenet_training.options import parse
from imagenet_training.schedule import Length, Schedule

import horovod.numpy as hvd

if TYPE_CHECKING:
    from imagenet_training.checkpoints import Checkpoints
    from imagenet_training.trainer import Trainer

GPU_BATCH = 256
CPU_BATCH = 16


def say(text: str) -> None:
    """Prints on rank 0."""
    if hvd.rank() == 0:
        print(text, flush=True)


def prepare_tensorflow() -> int:
    """Gives each process one GPU of its host. Returns the default batch size."""
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank() % len(gpus)], "GPU")
    say(f"PY{' '.join(sys.version.split())} TF{tf.__version__} Horovod size: {hvd.size()}")
    return GPU_BATCH if gpus else CPU_BATCH


class Training:
    """From the step of the newest checkpoint to the last one."""

    def __init__(
        self, options: argparse.Namespace, files: list[Path], trainer: Trainer, checkpoints: Checkpoints
    ) -> None:
        self._options = options
        self._files = files
        self._trainer = trainer
        self._checkpoints = checkpoints
        images = options.num_train_images or record_files.count(files, "train")
        self.length = Length(images, options.batch_size * hvd.size())
        self.steps = options.num_batches or max(1, self.length.steps(options.num_epochs))
        peak = options.lr or 0.1 * self.length.batch / 256
        warmup = min(self.length.warmup_steps(options.warmup_epochs), self.steps - 1)
        self._schedule = Schedule(peak, self.steps, warmup, options.lr_decay_mode, options.lr_power)

    def run(self, written: float | None) -> float | None:
        """Returns the time of the last checkpoint; `written` is that of the one to begin with."""
        options, trainer = self._options, self._trainer
        # Not the checkpoint's own number: perhaps there are more processes now, and fewer steps in an epoch.
        first = self.length.steps_done(float(trainer.epoch))
        trainer.step.assign(first)
        if written is not None:
            say(f"Going on from the checkpoint of step {first} in {options.log_dir}")
        if first >= self.steps:
            say(f"All {self.steps} steps are done. To start over: --clear_log; to go on: more --num_epochs")
            return written
        batches = self._batches(first)
        began = then = time.time()
        shown = first
        say("  Step Epoch  Speed  Loss   FinLoss LR")
        for step in range(first, self.steps):
            rate = self._schedule.rate(step)
            images, labels = next(batches)
            loss, whole = trainer.train(images, labels, rate)
            if step % options.display_every == 0 or step == first + 1:
                now = time.time()
                speed = (step + 1 - shown) * self.length.batch / (now - then)
                self._show(step, speed, loss, whole, rate)
                shown, then = step + 1, now
            if (step + 1) % options.save_interval == 0 or step + 1 == self.steps:
                trainer.epoch.assign(self.length.epoch(step + 1))
                written = self._checkpoints.save()
        say(f"Finished in {time.time() - began}")
        return written

    def _batches(self, first: int) -> Iterator[tuple[Any, Any]]:
        from imagenet_training import images

        options = self._options
        if options.synthetic:
            return iter(images.synthetic(options, options.seed + hvd.rank()))
        # Another order than before if it goes on in the middle, the same one on all ranks.
        seed = options.seed + first
        share = images.training(self._files, options, self.length.images, hvd.rank(), hvd.size(), seed)
        return images.checked(share)

    def _show(self, step: int, speed: float, loss: float, whole: float, rate: float) -> None:
        """Means over the ranks; they all come here."""
        loss, whole = hvd.allreduce(np.array([loss, whole]), name="loss")
        epoch = self.length.epoch(step)
        say(f"{step:6d} {epoch:5.1f} {speed:7.1f} {loss:6.3f} {whole:6.3f} {rate:7.5f}")
        if not math.isfinite(loss) and not self._options.synthetic:
            sys.exit(f"The loss is {loss} at step {step}: lower --lr, lengthen --warmup_epochs or try --lars")


def evaluate(options: argparse.Namespace, files: list[Path], trainer: Trainer, written: float | None) -> None:
    """Prints the second table."""
    from imagenet_training import evaluation, images

    say(f"Horovod size: {hvd.size()}")
    say("Evaluating")
    expected = record_files.count(files, "validation")
    say(f"Validation dataset size: {expected}")
    batches = images.evaluation(files, options, hvd.rank(), hvd.size())
    number, top1, top5, loss = evaluation.evaluate(trainer.network, images.checked(batches))
    if number != expected:
        sys.exit(f"{number} of {expected} validation images were evaluated: did the files change meanwhile?")
    when = datetime.datetime.fromtimestamp(written or time.time(), datetime.timezone.utc)
    say("  step  epoch  top1    top5     loss   checkpoint_time(UTC)")
    step, epoch = int(trainer.step), float(trainer.epoch)
    say(f"{step:6d} {epoch:6.1f} {top1:7.3f} {top5:7.2f} {loss:7.2f}  {when:%Y-%m-%d %H:%M:%S}")
    say("Finished evaluation")


def run(options: argparse.Namespace) -> None:
    """The whole program, once the flags are known to be right."""
    # Before TensorFlow is imported, so that a wrong directory is answered at once.
    trains_on_files = not options.synthetic and not options.eval
    train_files = record_files.find(options.data_dir, "train") if trains_on_files else []
    evaluates = not options.synthetic and not options.no_eval
    validation_files = record_files.find(options.data_dir, "validation") if evaluates else []
    hvd.init()
    batch = prepare_tensorflow()
    options.batch_size = options.batch_size or batch
    from imagenet_training.checkpoints import Checkpoints
    from imagenet_training.trainer import Trainer

    trainer = Trainer(options)
    checkpoints = Checkpoints(options.log_dir, trainer, options.clear_log)
    written = checkpoints.restore()
    if options.eval and written is None:
        sys.exit(f"{options.log_dir} has no checkpoint to evaluate: is it the right --log_dir?")
    if not options.eval:
        written = Training(options, train_files, trainer, checkpoints).run(written)
    if evaluates:
        evaluate(options, validation_files, trainer, written)
    hvd.shutdown()


def main() -> None:
    """Entry point."""
    run(parse())


if __name__ == "__main__":
    main()
