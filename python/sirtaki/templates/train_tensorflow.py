"""Train a small TensorFlow network on any number of processes.

python train.py                                one process
sirtaki run -np 4 python train.py              four processes on this machine
sirtaki run -np 8 -H a:4,b:4 python train.py   eight processes on two machines
"""

from __future__ import annotations

import tensorflow as tf

import sirtaki.tensorflow as hvd

EPOCHS = 5
BATCH_SIZE = 32  # samples in a step of one process
LEARNING_RATE = 0.05  # of one process
CHECKPOINT = "model.weights.h5"


def make_data() -> tf.data.Dataset:
    """Make points in a plane, and whether each lies inside a circle. Put your data here."""
    points = tf.random.stateless_uniform((4096, 2), seed=(0, 0), minval=-1.0)
    labels = tf.cast(tf.norm(points, axis=1) < 0.8, tf.int64)
    return tf.data.Dataset.from_tensor_slices((points, labels))


def make_model() -> tf.keras.Model:
    """Build the network. Put your model here."""
    return tf.keras.Sequential(
        [
            tf.keras.layers.Input((2,)),
            tf.keras.layers.Dense(64, activation="relu"),
            tf.keras.layers.Dense(2),
        ]
    )


def main() -> None:
    """Train, print the loss of each epoch, and save the model."""
    hvd.init()  # one process of many, or the only one
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank() % len(gpus)], "GPU")

    # Each process reads its own part of the data, in another order in each epoch.
    data = make_data().shard(hvd.size(), hvd.rank()).shuffle(4096, seed=hvd.rank())
    data = data.batch(BATCH_SIZE, drop_remainder=True)  # as many steps for every process

    # A step follows the mean gradient of all processes, so it may be longer.
    model = make_model()
    optimizer = tf.keras.optimizers.SGD(LEARNING_RATE * hvd.size(), momentum=0.9)
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def train_step(points: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = loss_of(labels, model(points, training=True))
        # Averages gradients over the processes.
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    # All processes start from the weights of rank 0.
    optimizer.build(model.trainable_variables)
    hvd.broadcast_variables(model.variables, root_rank=0)
    hvd.broadcast_variables(optimizer.variables, root_rank=0)

    for epoch in range(EPOCHS):
        losses = [train_step(points, labels) for points, labels in data]
        # The mean over all processes; every process calls it, one prints it.
        mean = float(hvd.allreduce(tf.reduce_mean(losses), name="loss"))
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1}: loss {mean:.4f}", flush=True)

    if hvd.rank() == 0:
        model.save_weights(CHECKPOINT)
        print(f"saved {CHECKPOINT}", flush=True)


if __name__ == "__main__":
    main()
