"""DistributedDataParallel with views, a static graph and a hook, and local SGD."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from small import network, own_batches, tell
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, post_localSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer
from torch.nn.parallel import DistributedDataParallel

backend, kind = sys.argv[1:]
dist.init_process_group(backend)
model = DistributedDataParallel(
    network(), gradient_as_bucket_view=kind == "views", static_graph=kind == "static graph"
)
optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if kind == "hook":
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)
if kind == "local SGD":
    everybody = dist.group.WORLD
    alone, _ = dist.new_subgroups(1)
    state = post_localSGD_hook.PostLocalSGDState(everybody, alone, start_localSGD_iter=2)
    model.register_comm_hook(state, post_localSGD_hook.post_localSGD_hook)
    averager = PeriodicModelAverager(period=3, warmup_steps=2)
    optimizer = PostLocalSGDOptimizer(optimizer, averager)
for inputs, wanted in own_batches():
    optimizer.zero_grad()
    nn.functional.mse_loss(model(inputs), wanted).backward()
    optimizer.step()
if kind == "local SGD":
    for parameter in model.parameters():
        dist.all_reduce(parameter.data)
tell(model.parameters())
dist.destroy_process_group()
