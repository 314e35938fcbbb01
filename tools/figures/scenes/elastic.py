"""Training that goes on when a process is lost."""

import time

import torch

import sirtaki.torch as hvd

hvd.init()
model = torch.nn.Linear(64, 10)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())


@hvd.elastic.run
def train(state):
    while state.epoch < 100:
        for _ in range(20):
            time.sleep(0.1)  # the rest of a step of a larger model
            optimizer.zero_grad()
            model(torch.randn(32, 64)).square().mean().backward()
            optimizer.step()
        state.epoch += 1
        if hvd.rank() == 0:
            print(f"epoch {state.epoch} on {hvd.size()} ranks", flush=True)
        state.commit()


train(hvd.elastic.TorchState(model, optimizer, epoch=0))
