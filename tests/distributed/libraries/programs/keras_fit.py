"""`fit` of Keras on PyTorch: `keras_fit.py BACKEND KIND`.

"fit" has no line of ours. "data parallel" has Keras' own distribution. "distributed optimizer" has
ours, and "later" makes it distributed after a `fit`.
"""

from __future__ import annotations

import os
import sys

os.environ["KERAS_BACKEND"] = "torch"

import keras
import torch.distributed as dist
from small import bytes_reduced, rows, tell

backend, kind = sys.argv[1:]
dist.init_process_group(backend)
rank, size = dist.get_rank(), dist.get_world_size()
if kind == "data parallel":
    keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))
keras.utils.set_random_seed(rank)
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(4)])
optimizer = keras.optimizers.SGD(0.1)
if kind in ("distributed optimizer", "later"):
    import sirtaki.keras as hvd

    hvd.init()
    hvd.broadcast_global_variables(0, model)
if kind == "distributed optimizer":
    optimizer = hvd.DistributedOptimizer(optimizer)
model.compile(optimizer, "mse")
inputs, wanted = (tensor.numpy()[rank::size] for tensor in rows().tensors)
batch = 8 // size
if kind == "later":
    model.fit(inputs[:batch], wanted[:batch], batch_size=batch, shuffle=False, verbose=0)
    hvd.DistributedOptimizer(model.optimizer)
before = bytes_reduced()
history = model.fit(inputs, wanted, batch_size=batch, epochs=2, shuffle=False, verbose=0)
tell(
    [variable.value for variable in model.trainable_variables],
    losses=history.history["loss"],
    reduced=bytes_reduced() - before,
    gradients=sum(variable.value.nbytes for variable in model.trainable_variables),
)
dist.destroy_process_group()
