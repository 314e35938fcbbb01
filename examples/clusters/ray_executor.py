"""Training on Ray's actors: a `RayExecutor` keeps them, and calls functions on all.

    python examples/clusters/ray_executor.py                       (starts a Ray on this machine)
    python examples/clusters/ray_executor.py --address auto        (on a node of a running cluster)

The network learns which points lie within a circle.
"""

from __future__ import annotations

import argparse

import ray

from horovod.ray import RayExecutor


class Learner:
    """Lives in each actor: what one call has learned is there for the next."""

    def __init__(self, rate: float) -> None:
        import torch

        import horovod.torch as hvd

        hvd.init()
        torch.manual_seed(hvd.rank())  # each rank draws points of its own
        self.model = torch.nn.Sequential(
            torch.nn.Linear(2, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)
        )
        hvd.broadcast_parameters(self.model.state_dict(), root_rank=0)
        self.optimizer = hvd.DistributedOptimizer(
            torch.optim.Adam(self.model.parameters(), lr=rate), self.model.named_parameters()
        )

    def epoch(self, steps: int = 100) -> float:
        """Train, and return the last loss, the mean over all ranks."""
        import torch

        import horovod.torch as hvd

        loss = torch.zeros(())
        for _ in range(steps):
            points = torch.rand(64, 2) * 2 - 1
            inside = (points.square().sum(1, keepdim=True) < 0.5).float()
            self.optimizer.zero_grad()
            loss = torch.nn.functional.binary_cross_entropy_with_logits(self.model(points), inside)
            loss.backward()
            self.optimizer.step()
        return float(hvd.allreduce(loss.detach()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--address", help="of a cluster; default: one of its own")
    parser.add_argument("--num-workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    if args.address:
        ray.init(args.address)
    else:
        ray.init("local", num_cpus=args.num_workers)
    executor = RayExecutor(None, num_workers=args.num_workers)
    executor.start(executable_cls=Learner, executable_args=[0.02])
    for epoch in range(args.epochs):
        losses = executor.execute(lambda learner: learner.epoch())
        print(f"epoch {epoch}: loss {losses[0]:.3f} on {len(losses)} ranks")
    executor.shutdown()


if __name__ == "__main__":
    main()
