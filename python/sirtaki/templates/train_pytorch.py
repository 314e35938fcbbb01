"""Train a small PyTorch network on any number of processes.

python train.py                                one process
sirtaki run -np 4 python train.py              four processes on this machine
sirtaki run -np 8 -H a:4,b:4 python train.py   eight processes on two machines
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import sirtaki.torch as hvd

EPOCHS = 5
BATCH_SIZE = 32  # samples in a step of one process
LEARNING_RATE = 0.05  # of one process
CHECKPOINT = "model.pt"


def make_data() -> TensorDataset:
    """Make points in a plane, and whether each lies inside a circle. Put your data here."""
    points = torch.rand(4096, 2, generator=torch.Generator().manual_seed(0)) * 2 - 1
    return TensorDataset(points, (points.norm(dim=1) < 0.8).long())


def make_model() -> nn.Module:
    """Build the network. Put your model here."""
    return nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 2))


def main() -> None:
    """Train, print the loss of each epoch, and save the model."""
    hvd.init()  # one process of many, or the only one
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", hvd.local_rank() % torch.cuda.device_count())

    # Each process reads its own part of the data.
    data = make_data()
    sampler: DistributedSampler[object] = DistributedSampler(data, hvd.size(), hvd.rank())
    loader = DataLoader(data, BATCH_SIZE, sampler=sampler)

    # A step follows the mean gradient of all processes, so it may be longer.
    model = make_model().to(device)
    optimizer: torch.optim.Optimizer = torch.optim.SGD(
        model.parameters(), lr=LEARNING_RATE * hvd.size(), momentum=0.9
    )
    # Averages gradients over the processes while backward() computes the others.
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

    # All processes start from the weights of rank 0.
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)  # another order in each epoch
        total = torch.zeros(())
        for points, labels in loader:
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(points.to(device)), labels.to(device))
            loss.backward()
            optimizer.step()
            total += loss.detach().cpu()
        # The mean over all processes; every process calls it, one prints it.
        mean = hvd.allreduce(total / len(loader), name="loss").item()
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1}: loss {mean:.4f}", flush=True)

    if hvd.rank() == 0:
        torch.save(model.state_dict(), CHECKPOINT)
        print(f"saved {CHECKPOINT}", flush=True)


if __name__ == "__main__":
    main()
