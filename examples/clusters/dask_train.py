"""Training on Dask's workers, each of which is a rank.

    python examples/clusters/dask_train.py                                 (starts two workers)
    python examples/clusters/dask_train.py --address tcp://scheduler:8786  (on a running cluster)

The network learns which points lie within a circle.
"""

from __future__ import annotations

import argparse

from distributed import Client, LocalCluster

import sirtaki.dask


def train(steps: int) -> float:
    """Train on one rank; return the last loss."""
    import torch

    import horovod.torch as hvd

    hvd.init()
    torch.manual_seed(hvd.rank())
    model = torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.Adam(model.parameters(), lr=0.02), model.named_parameters()
    )
    loss = torch.zeros(())
    for _ in range(steps):
        points = torch.rand(64, 2) * 2 - 1
        inside = (points.square().sum(1, keepdim=True) < 0.5).float()
        optimizer.zero_grad()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(points), inside)
        loss.backward()
        optimizer.step()
    return float(hvd.allreduce(loss.detach()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--address", help="of a scheduler; default: a cluster of its own")
    parser.add_argument("--np", type=int, default=2, help="the number of ranks")
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    cluster = args.address or LocalCluster(n_workers=args.np, dashboard_address=None)
    with Client(cluster) as client:
        losses = sirtaki.dask.run(client, train, [args.steps], np=args.np)
    print(f"{len(losses)} ranks, loss {losses[0]:.3f}")


if __name__ == "__main__":
    main()
