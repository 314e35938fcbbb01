"""How many images a second a model trains on, with random images.

    horovodrun -np 2 python examples/pytorch_synthetic_benchmark.py --model small-cnn

Compare with one process: `python examples/pytorch_synthetic_benchmark.py`.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

import horovod.torch as hvd

CLASSES = 1000
PIXELS = 64  # an image has this many rows and columns, in three colours
CONFIDENCE = 1.96  # standard deviations that hold 95 % of normal samples


def small_cnn() -> nn.Module:
    """Little to send for what there is to compute."""
    layers: list[nn.Module] = []
    for before, after in ((3, 32), (32, 64), (64, 128), (128, 256)):
        convolution = nn.Conv2d(before, after, 3, padding=1, bias=False)
        layers += [convolution, nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, CLASSES))


def mlp() -> nn.Module:
    """Much to send for what there is to compute: 15 million parameters."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(3 * PIXELS * PIXELS, 1024),
        nn.ReLU(),
        nn.Linear(1024, 1024),
        nn.ReLU(),
        nn.Linear(1024, CLASSES),
    )


MODELS: dict[str, Callable[[], nn.Module]] = {"small-cnn": small_cnn, "mlp": mlp}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=MODELS, default="small-cnn")
    parser.add_argument("--batch-size", type=int, default=32, help="images a step and process")
    parser.add_argument("--num-warmup-batches", type=int, default=5)
    parser.add_argument("--num-batches-per-iter", type=int, default=5)
    parser.add_argument("--num-iters", type=int, default=5, help="measurements")
    parser.add_argument("--fp16-allreduce", action="store_true", help="send gradients as float16")
    parser.add_argument("--use-adasum", action="store_true", help="combine gradients by Adasum")
    parser.add_argument("--no-cuda", action="store_true", help="use the CPU, even with a GPU")
    return parser.parse_args()


def distributed(model: nn.Module, args: argparse.Namespace) -> torch.optim.Optimizer:
    """Return an optimizer that averages gradients, and start all processes from one model."""
    # An average of more gradients allows a longer step; Adasum finds the length by itself.
    scale = 1 if args.use_adasum else hvd.size()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.01 * scale),
        named_parameters=model.named_parameters(),
        compression=hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none,
        op=hvd.Adasum if args.use_adasum else hvd.Average,
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    return optimizer


def speed(steps: int, batch_size: int, step: Callable[[], None]) -> float:
    """Return images a second of this process over some training steps."""
    start = time.perf_counter()
    for _ in range(steps):
        step()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return steps * batch_size / (time.perf_counter() - start)


def say(text: str) -> None:
    """Print on the first process only."""
    if hvd.rank() == 0:
        print(text, flush=True)


def main() -> None:
    args = parse_arguments()
    hvd.init()
    use_cuda = torch.cuda.is_available() and not args.no_cuda
    device = torch.device("cuda", hvd.local_rank()) if use_cuda else torch.device("cpu")
    unit = "GPU" if use_cuda else "CPU"

    model = MODELS[args.model]().to(device)
    optimizer = distributed(model, args)
    images = torch.randn(args.batch_size, 3, PIXELS, PIXELS, device=device)
    labels = torch.randint(CLASSES, (args.batch_size,), device=device)

    def step() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    say(f"Model: {args.model}\nBatch size: {args.batch_size}\nNumber of {unit}s: {hvd.size()}")
    say("Running warmup...")
    if args.num_warmup_batches:
        speed(args.num_warmup_batches, args.batch_size, step)
    say("Running benchmark...")
    speeds = []
    for i in range(args.num_iters):
        speeds.append(speed(args.num_batches_per_iter, args.batch_size, step))
        say(f"Iter #{i}: {speeds[-1]:.1f} img/sec per {unit}")

    mean, spread = statistics.mean(speeds), CONFIDENCE * statistics.pstdev(speeds)
    n = hvd.size()
    say(f"Img/sec per {unit}: {mean:.1f} +-{spread:.1f}")
    say(f"Total img/sec on {n} {unit}(s): {n * mean:.1f} +-{n * spread:.1f}")
    hvd.shutdown()


if __name__ == "__main__":
    main()
