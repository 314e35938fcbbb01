"""Train a small Keras network on any number of processes, on any backend of Keras.

python train.py                                one process
sirtaki run -np 4 python train.py              four processes on this machine
sirtaki run -np 8 -H a:4,b:4 python train.py   eight processes on two machines

KERAS_BACKEND=torch (or tensorflow, jax) chooses the backend.
"""

from __future__ import annotations

import keras
import numpy as np

import sirtaki.keras as hvd

EPOCHS = 5
BATCH_SIZE = 32  # samples in a step of one process
LEARNING_RATE = 0.05  # of one process
CHECKPOINT = "model.keras"


def make_data() -> tuple[np.ndarray, np.ndarray]:
    """Make points in a plane, and whether each lies inside a circle. Put your data here."""
    points = np.random.default_rng(0).uniform(-1, 1, (4096, 2)).astype(np.float32)
    return points, (np.linalg.norm(points, axis=1) < 0.8).astype(np.int64)


def make_model() -> keras.Model:
    """Build the network. Put your model here."""
    return keras.Sequential(
        [
            keras.layers.Input((2,)),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(2),
        ]
    )


def main() -> None:
    """Train, print the loss of each epoch, and save the model."""
    hvd.init()  # one process of many, or the only one

    # Each process reads its own part of the data, as many samples as every other.
    points, labels = make_data()
    each = len(points) // hvd.size()
    mine = slice(hvd.rank() * each, (hvd.rank() + 1) * each)

    # A step follows the mean gradient of all processes, so it may be longer.
    optimizer = keras.optimizers.SGD(LEARNING_RATE * hvd.size(), momentum=0.9)
    model = make_model()
    model.compile(
        # Averages gradients over the processes.
        optimizer=hvd.DistributedOptimizer(optimizer),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    callbacks = [
        # All processes start from the weights of rank 0.
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        # The losses of an epoch are the means over all processes.
        hvd.callbacks.MetricAverageCallback(),
    ]
    history = model.fit(
        points[mine], labels[mine], BATCH_SIZE, EPOCHS, callbacks=callbacks, verbose=0
    )

    if hvd.rank() == 0:
        for epoch, loss in enumerate(history.history["loss"], 1):
            print(f"epoch {epoch}: loss {loss:.4f}", flush=True)
        model.save(CHECKPOINT)
        print(f"saved {CHECKPOINT}", flush=True)


if __name__ == "__main__":
    main()
