"""LeNet-5 learns handwritten digits on machines whose network is slow.

    horovodrun -np 4 python examples/pytorch_diloco.py

Each process takes 20 steps alone before it exchanges what has changed. With --between-hosts, the
processes of a host average each step. Needs scikit-learn, which brings the digits.
"""

from __future__ import annotations

import argparse

import torch
from mnist_data import load_digits
from pytorch_mnist import LeNet5, accuracy, say, share, train_epoch

import horovod.torch as hvd


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", help="folder of MNIST's IDX files; default: small digits")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=16, help="images a step and process")
    parser.add_argument("--lr", type=float, default=0.002, help="learning rate of a process")
    parser.add_argument("--sync-every", type=int, default=20, help="steps between two exchanges")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--between-hosts",
        action="store_true",
        help="processes of a host average each step, and hosts exchange now and then",
    )
    return parser.parse_args()


def made_optimizer(args: argparse.Namespace, model: torch.nn.Module) -> torch.optim.Optimizer:
    optimizer = torch.optim.AdamW(model.parameters(), args.lr)
    if not args.between_hosts:
        return hvd.DiLoCo(optimizer, model, args.sync_every)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    return hvd.DiLoCo(optimizer, model, args.sync_every, between="hosts")


def main() -> None:
    args = parse_arguments()
    hvd.init()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed + hvd.rank())  # dropout differs; weights are broadcast below
    train_set, test_set, source = load_digits(args.data_dir)
    train_loader = share(train_set, args, train=True)
    test_loader = share(test_set, args, train=False)
    say(f"Data: {source}: {len(train_set)} to train, {len(test_set)} to test")

    model = LeNet5()
    optimizer = made_optimizer(args, model)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    for epoch in range(args.epochs):
        train_loader.sampler.set_epoch(epoch)
        loss, speed = train_epoch(model, optimizer, train_loader, f"{epoch + 1}")
        schedule.step()
        say(f"Epoch {epoch + 1}: loss {loss:.3f}, {speed:.0f} images/s on this process")
    optimizer.finish()  # now all processes have the same weights
    reached = accuracy(model, test_loader)
    say(f"Test accuracy: {100 * reached:.2f}%")
    hvd.shutdown()


if __name__ == "__main__":
    main()
