"""Trains one weight with FRAMEWORK in an elastic job, and comes to harm where FAULTS says so.

Each step takes 1 from the weight. Training ends after STEPS steps and WORLDS worlds. FAULTS: words
such as kill:1@5, which means that process 1 kills itself at step 5. HOSTS: a file that rank 0 gives
the text THEN at step 5, before it comes to `check_host_updates`, where the others wait.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

FRAMEWORK = os.environ["FRAMEWORK"]
PROCESS = os.environ["SIRTAKI_PROCESS"]
STEPS = 10
WORLDS = int(os.environ.get("WORLDS", "1"))
HOSTS = os.environ.get("HOSTS", "")

if FRAMEWORK == "torch":
    import torch

    import horovod.torch as hvd

    hvd.init()
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=1.0), named_parameters=model.named_parameters()
    )
    state: Any = hvd.elastic.TorchState(model, optimizer, step=0, sizes=[])

    def take_step() -> None:
        optimizer.zero_grad()
        model(torch.ones(1, 1)).sum().backward()
        optimizer.step()

    def weight() -> float:
        return float(model.weight)

elif FRAMEWORK == "tensorflow":
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    variable = tf.Variable(tf.zeros(1))
    state = hvd.elastic.TensorFlowState([variable], step=0, sizes=[])

    @tf.function
    def take_step() -> None:
        variable.assign_sub(hvd.allreduce(tf.ones(1)))

    def weight() -> float:
        return float(variable.numpy()[0])

else:
    import keras
    import numpy as np

    import horovod.keras as hvd

    hvd.init()
    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    model.set_weights([np.zeros((1, 1))])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(1.0)), lambda y, p: p - y)
    state = hvd.elastic.KerasState(model, step=0, sizes=[])

    def take_step() -> None:
        model.train_on_batch(np.ones((1, 1)), np.ones((1, 1)))

    def weight() -> float:
        return float(model.get_weights()[0][0, 0])


def come_to_harm(step: int) -> None:
    for word in os.environ.get("FAULTS", "").split():
        kind, _, where = word.partition(":")
        who, _, when = where.partition("@")
        if who not in (PROCESS, "all") or int(when) != step:
            continue
        if kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif kind == "exit":
            sys.exit(3)
        raise RuntimeError(f"step {step} of somebody's program")


def change_hosts() -> None:
    """Return when the driver has told it: if hosts have come, when a process waits for a place."""
    Path(HOSTS).write_text(os.environ["THEN"])
    while state._host_messages.empty():
        time.sleep(0.01)


@hvd.elastic.run
def train(state: Any) -> None:
    state.sizes = [*state.sizes, hvd.size()]
    print("world", *state.sizes, flush=True)
    while state.step < STEPS or len(state.sizes) < WORLDS:
        come_to_harm(state.step)
        take_step()
        state.step += 1
        if HOSTS and state.step == 5 and hvd.rank() == 0:
            change_hosts()
        state.commit()
        time.sleep(0.01)


train(state)
assert weight() == -state.step, (weight(), state.step)
print("end", PROCESS, "of", *state.sizes, flush=True)
