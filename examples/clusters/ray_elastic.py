"""Elastic training on Ray: it goes on when workers or nodes are lost, and grows with the cluster.

    python examples/clusters/ray_elastic.py                       (starts a Ray on this machine)
    python examples/clusters/ray_elastic.py --address auto        (on a node of a running cluster)

The network learns which points lie within a circle. Kill a process to see the others go on.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

import ray

from horovod.ray import ElasticRayExecutor


def train(steps: int) -> float:
    """Train on one process of the job; return the last loss."""
    import torch

    import horovod.torch as hvd

    hvd.init()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.Adam(model.parameters(), lr=0.02), model.named_parameters()
    )

    @hvd.elastic.run
    def loop(state: Any) -> float:
        loss = torch.zeros(())
        while state.step < steps:
            points = torch.rand(64, 2) * 2 - 1
            inside = (points.square().sum(1, keepdim=True) < 0.5).float()
            optimizer.zero_grad()
            loss = torch.nn.functional.binary_cross_entropy_with_logits(model(points), inside)
            loss.backward()
            optimizer.step()
            state.step += 1
            if state.step % 10 == 0:
                state.commit()
        return float(hvd.allreduce(loss.detach()))

    return float(loop(hvd.elastic.TorchState(model, optimizer, step=0)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--address", help="of a cluster; default: one of its own")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--min-np", type=int, default=1)
    parser.add_argument("--max-np", type=int, default=2)
    args = parser.parse_args()
    if args.address:
        ray.init(args.address)
    else:
        ray.init("local", num_cpus=args.max_np)
    settings = ElasticRayExecutor.create_settings(args.min_np, args.max_np)
    executor = ElasticRayExecutor(settings)
    executor.start()
    losses = executor.run(partial(train, args.steps))
    print(f"{len(losses)} processes, loss {losses[0]:.3f}")


if __name__ == "__main__":
    main()
