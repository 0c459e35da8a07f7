"""Measures how many random images per second a model is trained on:

    horovodrun -np 2 python examples/pytorch/pytorch_synthetic_benchmark.py

The built-in models `resnet` (18 layers for 32x32 pixels) and `mlp` need nothing else; with torchvision
installed, the name of any of its classification models will do.
"""

from __future__ import annotations

import argparse
import sys
import timeit
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

import horovod.torch as hvd

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
from program import add_counts, new_parser, not_negative, told_errors

CLASSES = 1000


class Block(nn.Module):
    """Two convolutions and a short cut around them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.short_cut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.short_cut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden = functional.relu(self.norm1(self.conv1(images)))
        return functional.relu(self.norm2(self.conv2(hidden)) + self.short_cut(images))


def resnet(width: int) -> nn.Module:
    """A residual network of 18 layers, `width` channels wide at its beginning."""
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    channels = width
    for stage in range(4):
        outputs = width * 2**stage
        layers += [Block(channels, outputs, 1 if stage == 0 else 2), Block(outputs, outputs, 1)]
        channels = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES))


def mlp(width: int) -> nn.Module:
    """Three dense layers."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(3 * 32 * 32, 16 * width),
        nn.ReLU(),
        nn.Linear(16 * width, 16 * width),
        nn.ReLU(),
        nn.Linear(16 * width, CLASSES),
    )


def build(name: str, width: int) -> tuple[nn.Module, int]:
    """The model and the height and width of its images."""
    if name in ("resnet", "mlp"):
        return (resnet if name == "resnet" else mlp)(width), 32
    try:
        from torchvision import models
    except ImportError:
        sys.exit(f"--model {name}: not one of resnet and mlp, and torchvision is not installed")
    try:
        return models.get_model(name), 224
    except ValueError as error:
        sys.exit(f"--model {name}: {error}")


def say(text: str) -> None:
    """Prints on rank 0."""
    if hvd.rank() == 0:
        print(text, flush=True)


def run(options: argparse.Namespace) -> None:
    hvd.init()
    torch.set_num_threads(options.threads)
    cuda = not options.no_cuda and torch.cuda.is_available()
    if cuda:
        torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())
    device = torch.device("cuda" if cuda else "cpu")
    model, side = build(options.model, options.width)
    model.to(device)
    scale = 1 if options.use_adasum else hvd.size()
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.01 * scale)
    optimizer = hvd.DistributedOptimizer(
        optimizer,
        named_parameters=model.named_parameters(),
        compression=hvd.Compression.fp16 if options.fp16_allreduce else hvd.Compression.none,
        op=hvd.Adasum if options.use_adasum else hvd.Average,
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    images = torch.randn(options.batch_size, 3, side, side, device=device)
    labels = torch.randint(0, CLASSES, (options.batch_size,), device=device)

    def step() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    parameters = sum(parameter.numel() for parameter in model.parameters())
    say(f"Model: {options.model}, {parameters:,} parameters")
    say(f"Batch size: {options.batch_size}")
    say(f"Number of processes: {hvd.size()}, on {device.type}")
    say("Running warmup...")
    if options.num_warmup_batches:
        timeit.timeit(step, number=options.num_warmup_batches)
    say("Running benchmark...")
    speeds = []
    for number in range(options.num_iters):
        seconds = timeit.timeit(step, number=options.num_batches_per_iter)
        speeds.append(options.batch_size * options.num_batches_per_iter / seconds)
        say(f"Iter #{number}: {speeds[-1]:.1f} img/sec per process")
    mean, spread = (float(value) for value in _mean_and_spread(speeds))
    say(f"Img/sec per process: {mean:.1f} +-{spread:.1f}")
    say(f"Total img/sec on {hvd.size()} process(es): {hvd.size() * mean:.1f} +-{hvd.size() * spread:.1f}")
    hvd.shutdown()


def _mean_and_spread(speeds: list[float]) -> tuple[torch.Tensor, torch.Tensor]:
    """The mean, and the distance from it that covers 95% of a normal distribution."""
    values = torch.tensor(speeds)
    return values.mean(), 1.96 * values.std(correction=0)


def parse() -> argparse.Namespace:
    parser = new_parser("Training speed on random images")
    parser.add_argument("--model", default="resnet", help="resnet, mlp, or a model of torchvision")
    add_counts(
        parser,
        width=(64, "of the built-in models"),
        batch_size=(32, "images per step and process"),
        num_batches_per_iter=(10, "steps per measurement"),
        num_iters=(10, "measurements"),
        threads=(1, "of torch, per process"),
    )
    parser.add_argument(
        "--num-warmup-batches", type=not_negative, default=10, help="steps before it is measured"
    )
    parser.add_argument("--fp16-allreduce", action="store_true", help="gradients travel as float16")
    parser.add_argument("--use-adasum", action="store_true", help="combine the ranks' updates with Adasum")
    parser.add_argument("--no-cuda", action="store_true", help="stay on the CPU")
    return parser.parse_args()


if __name__ == "__main__":
    with told_errors():
        run(parse())
