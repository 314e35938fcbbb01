"""Ray Train on Sirtaki: `TorchTrainer` with our configuration.

    python examples/clusters/ray_train.py

In the loop `hvd.init()` joins the other workers. The network learns which points lie within a
circle.
"""

from __future__ import annotations

import argparse
import tempfile

import ray
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

from sirtaki.ray.train import SirtakiConfig


def loop(config: dict[str, int]) -> tuple[int, float]:
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
    for _ in range(config["steps"]):
        points = torch.rand(64, 2) * 2 - 1
        inside = (points.square().sum(1, keepdim=True) < 0.5).float()
        optimizer.zero_grad()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(points), inside)
        loss.backward()
        optimizer.step()
    return hvd.size(), float(hvd.allreduce(loss.detach()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num-workers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    # Ray Train's own controller takes a CPU, too.
    ray.init("local", num_cpus=args.num_workers + 1, include_dashboard=False, log_to_driver=False)
    with tempfile.TemporaryDirectory() as folder:
        trainer = TorchTrainer(
            loop,
            train_loop_config={"steps": args.steps},
            torch_config=SirtakiConfig(),
            scaling_config=ScalingConfig(num_workers=args.num_workers),
            run_config=RunConfig(storage_path=folder),
        )
        size, loss = trainer.fit().return_value
    print(f"{size} workers, loss {loss:.3f}")


if __name__ == "__main__":
    main()
