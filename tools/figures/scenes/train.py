"""One rank waits for its data for ever; the others wait for that rank."""

import socket

import torch

import sirtaki.torch as hvd

hvd.init()
model = torch.nn.Linear(64, 10)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
server, _ = socket.socketpair()  # it answers nothing


def batches():
    for number in range(20):
        if epoch == 2 and hvd.rank() == 1 and number == 10:
            server.recv(4096)
        yield torch.randn(32, 64)


def step(batch):
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()


for epoch in range(1, 4):
    for batch in batches():
        step(batch)
    if hvd.rank() == 0:
        print(f"epoch {epoch} on {hvd.size()} ranks", flush=True)
