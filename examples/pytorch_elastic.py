"""Elastic training with PyTorch: it goes on without lost processes, and from its checkpoints.

    horovodrun -np 2 python examples/pytorch_elastic.py --checkpoints runs/circle

The network learns which points lie within a circle. Run it with --min-np 1 to let it outlive a
process; with --lose-at 20, process 1 kills itself at step 20, to show what happens then.
"""

from __future__ import annotations

import argparse
import os
import signal
from typing import Any

import torch
from torch import nn

import horovod.torch as hvd


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=16, help="points a step and process")
    parser.add_argument("--lr", type=float, default=0.02, help="learning rate of one process")
    parser.add_argument("--checkpoints", metavar="FOLDER", help="continued from, and written to")
    parser.add_argument("--lose-at", type=int, metavar="STEP", help="process 1 kills itself there")
    return parser.parse_args()


def come_to_harm(args: argparse.Namespace, step: int) -> None:
    if step == args.lose_at and os.environ.get("SIRTAKI_PROCESS") == "1":
        os.kill(os.getpid(), signal.SIGKILL)


def say(text: str) -> None:
    """Print on the first process only."""
    if hvd.rank() == 0:
        print(text, flush=True)


def resume(args: argparse.Namespace, state: Any) -> None:
    """Go on from the newest checkpoint, if there is one; `run` gives it to all processes."""
    loaded = hvd.checkpoint.load(args.checkpoints, state) if args.checkpoints else None
    if loaded:
        say(f"continues from step {loaded.step}")


def end_epoch(args: argparse.Namespace, state: Any, correct: float) -> None:
    say(f"epoch {state.epoch}/{args.epochs}: {correct:.1%} on {hvd.size()} processes")
    if args.checkpoints:
        hvd.checkpoint.save(args.checkpoints, state, state.step)


def circle(count: int) -> torch.utils.data.TensorDataset:
    """Return points of a square, and whether each lies within a circle of half its area."""
    points = 2 * torch.rand(count, 2, generator=torch.Generator().manual_seed(1)) - 1
    return torch.utils.data.TensorDataset(points, (points.square().sum(1) < 0.64).float())


@hvd.elastic.run
def train(state: hvd.elastic.TorchState, args: argparse.Namespace) -> None:
    loader = torch.utils.data.DataLoader(
        circle(1600), batch_size=args.batch_size, sampler=state.sampler
    )
    while state.epoch < args.epochs:
        for number, (points, inside) in enumerate(loader):
            come_to_harm(args, state.step)
            state.optimizer.zero_grad()
            output = state.model(points).squeeze(1)
            nn.functional.binary_cross_entropy_with_logits(output, inside).backward()
            state.optimizer.step()
            state.sampler.record_batch(number, args.batch_size)
            state.step += 1
            state.commit()
        state.epoch += 1
        state.sampler.set_epoch(state.epoch)
        end_epoch(args, state, accuracy(state.model))


@torch.no_grad()
def accuracy(model: nn.Module) -> float:
    points, inside = circle(1600).tensors
    return ((model(points).squeeze(1) > 0) == inside.bool()).float().mean().item()


def main() -> None:
    args = parse_arguments()
    hvd.init()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.Adam(model.parameters(), lr=args.lr * hvd.size()), model.named_parameters()
    )
    sampler = hvd.elastic.ElasticSampler(circle(1600))
    state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0, step=0)

    def follow_the_size() -> None:
        for group in optimizer.param_groups:
            group["lr"] = args.lr * hvd.size()

    state.register_reset_callbacks([follow_the_size])
    resume(args, state)
    train(state, args)
    hvd.checkpoint.wait()
    say(f"Accuracy: {accuracy(model):.1%}")


if __name__ == "__main__":
    main()
