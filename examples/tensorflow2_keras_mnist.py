"""LeNet-5 learns handwritten digits on any number of processes, with `tf.keras` and `tf.data`.

    horovodrun -np 2 python examples/tensorflow2_keras_mnist.py

Without --data-dir it needs scikit-learn, which brings 1797 digits.

It differs from a script for one process where it says `hvd`; without horovodrun it is one.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from typing import Any

import tensorflow as tf
from mnist_arrays import PIXELS, Digits, load_arrays

import horovod.tensorflow.keras as hvd

layers = tf.keras.layers


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", help="folder of MNIST's IDX files; default: small digits")
    parser.add_argument("--epochs", type=int, default=24)
    parser.add_argument("--batch-size", type=int, default=16, help="images a step and process")
    parser.add_argument("--lr", type=float, default=0.02, help="learning rate of one process")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--checkpoint", metavar="FILE.keras", help="continued from, kept up to date"
    )
    parser.add_argument(
        "--compare-single",
        action="store_true",
        help="measure one process alone as well, and print the speed-up over it",
    )
    return parser.parse_args()


def lenet5() -> tf.keras.Model:
    """Return LeCun's network of 1998, with today's activation and pooling."""
    return tf.keras.Sequential(
        [
            tf.keras.Input((PIXELS, PIXELS, 1)),
            layers.Conv2D(6, 5, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(16, 5, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(120, activation="relu"),
            layers.Dense(84, activation="relu"),
            layers.Dense(10),
        ]
    )


def compiled(optimizer: Any) -> tf.keras.Model:
    model = lenet5()
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"])
    return model


def share(digits: Digits, args: argparse.Namespace) -> tf.data.Dataset:
    """Return this process's batches, as many as every other has, in a new order each epoch."""
    images, labels = digits
    steps = len(labels) // hvd.size() // args.batch_size
    dataset = tf.data.Dataset.from_tensor_slices((images[..., None], labels))
    dataset = dataset.shard(hvd.size(), hvd.rank()).shuffle(10_000, args.seed)
    return dataset.batch(args.batch_size).take(steps)


class Speed(tf.keras.callbacks.Callback):
    """Measures images/s of this process; the median of all epochs but the first, the slowest."""

    def __init__(self, images: int) -> None:
        super().__init__()
        self.images = images
        self.epochs: list[float] = []

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.start = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.epochs.append(self.images / (time.perf_counter() - self.start))

    @property
    def typical(self) -> float:
        return statistics.median(self.epochs[1:] or self.epochs)


def train(data: tf.data.Dataset, args: argparse.Namespace) -> tuple[tf.keras.Model, float]:
    """Train on all processes; return the model and images/s of them all."""
    # A step follows the average gradient of all processes, so it can be that many times longer.
    rate = args.lr * hvd.size()
    optimizer = tf.keras.optimizers.SGD(rate, momentum=0.9)
    model = compiled(hvd.DistributedOptimizer(optimizer))
    if args.checkpoint and hvd.rank() == 0 and tf.io.gfile.exists(args.checkpoint):
        model.load_weights(args.checkpoint)
    speed = Speed(len(data) * args.batch_size)
    callbacks = [
        speed,
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        hvd.callbacks.LearningRateWarmupCallback(rate, warmup_epochs=4),
    ]
    if args.checkpoint and hvd.rank() == 0:
        callbacks.append(tf.keras.callbacks.ModelCheckpoint(args.checkpoint))
    model.fit(data, epochs=args.epochs, verbose=2 if hvd.rank() == 0 else 0, callbacks=callbacks)
    return model, hvd.size() * speed.typical


def accuracy(model: tf.keras.Model, digits: Digits) -> float:
    """Return the share of the test images that are recognised, over all processes."""
    images, labels = (array[hvd.rank() :: hvd.size()] for array in digits)
    hits = model.predict(images[..., None], verbose=0).argmax(1) == labels
    return float(hvd.allreduce(hits.sum(), op=hvd.Sum, name="hits")) / len(digits[1])


def speed_alone(data: tf.data.Dataset, args: argparse.Namespace) -> float:
    """Return images/s of the first process alone; the others wait, and return nan."""
    speed = Speed(len(data) * args.batch_size)
    if hvd.rank() == 0:
        model = compiled(tf.keras.optimizers.SGD(args.lr, momentum=0.9))
        model.fit(data, epochs=3, verbose=0, callbacks=[speed])
    hvd.broadcast(0, 0, name="alone")
    return speed.typical if hvd.rank() == 0 else math.nan


def say(text: str) -> None:
    """Print on the first process only."""
    if hvd.rank() == 0:
        print(text, flush=True)


def main() -> None:
    args = parse_arguments()
    hvd.init()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.keras.utils.set_random_seed(args.seed + hvd.rank())  # weights are broadcast
    train_set, test_set, source = load_arrays(args.data_dir)
    say(f"Data: {source}: {len(train_set[1])} to train, {len(test_set[1])} to test")
    mine = share(train_set, args)
    model, speed = train(mine, args)
    say(f"Test accuracy: {accuracy(model, test_set):.2%}")
    say(f"Speed: {speed:.0f} images/s over {hvd.size()} processes")
    if args.compare_single:
        alone = speed_alone(mine, args)
        say(f"Speed-up: {speed / alone:.2f} over one process alone ({alone:.0f} images/s)")
    hvd.shutdown()


if __name__ == "__main__":
    main()
