"""DeepSpeed's engine with ZeRO 0 to 3 on CPUs."""

from __future__ import annotations

import sys

import deepspeed
import torch
from small import network, own_batches, tell
from torch import nn

backend, stage = sys.argv[1:]
deepspeed.init_distributed(dist_backend=backend)
model = network()
engine, _, _, _ = deepspeed.initialize(
    model=model,
    optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
    config={
        "train_micro_batch_size_per_gpu": 4,
        "zero_optimization": {"stage": int(stage)},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    },
)
for inputs, wanted in own_batches():
    engine.backward(nn.functional.mse_loss(engine(inputs), wanted))
    engine.step()
with deepspeed.zero.GatheredParameters(list(engine.module.parameters()), enabled=stage == "3"):
    tell(engine.module.parameters())
