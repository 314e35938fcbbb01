"""LeNet-5 learns handwritten digits on any number of processes, with a gradient tape.

    horovodrun -np 2 python examples/tensorflow2_mnist.py

Without --data-dir it needs scikit-learn, which brings 1797 digits.

It differs from a script for one process where it says `hvd`; without horovodrun it is one.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from mnist_arrays import PIXELS, Digits, load_arrays

import horovod.tensorflow as hvd

layers = tf.keras.layers
Step = Callable[[Any, Any, bool], Any]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", help="folder of MNIST's IDX files; default: small digits")
    parser.add_argument("--epochs", type=int, default=24)
    parser.add_argument("--batch-size", type=int, default=16, help="images a step and process")
    parser.add_argument("--lr", type=float, default=0.02, help="learning rate of one process")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--checkpoint", metavar="FOLDER", help="continued from, kept up to date")
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


def make_step(model: tf.keras.Model, optimizer: Any, shared: bool) -> Step:
    """Return a compiled training step, of all processes or of one alone."""
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def step(images: Any, labels: Any, first: bool) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(labels, model(images, training=True))
        if shared:
            tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        if shared and first:
            # After the first step, when the optimizer has all its variables, too.
            hvd.broadcast_variables(model.weights, root_rank=0)
            hvd.broadcast_variables(optimizer.variables, root_rank=0)
        return loss

    return step


def share(digits: Digits, args: argparse.Namespace) -> tf.data.Dataset:
    """Return this process's batches, as many as every other has, in a new order each epoch."""
    images, labels = digits
    steps = len(labels) // hvd.size() // args.batch_size
    dataset = tf.data.Dataset.from_tensor_slices((images[..., None], labels))
    dataset = dataset.shard(hvd.size(), hvd.rank()).shuffle(10_000, args.seed)
    return dataset.batch(args.batch_size).take(steps)


def train_epoch(
    step: Step, data: tf.data.Dataset, args: argparse.Namespace, first: bool
) -> tuple[float, float]:
    """Train on all batches; return the mean loss and images/s of this process."""
    losses = []
    start = time.perf_counter()
    for number, (images, labels) in enumerate(data):
        losses.append(step(images, labels, first and number == 0))
    mean = float(tf.reduce_mean(losses))
    return mean, len(losses) * args.batch_size / (time.perf_counter() - start)


def accuracy(model: tf.keras.Model, digits: Digits) -> float:
    """Return the share of the test images that are recognised, over all processes."""
    images, labels = (array[hvd.rank() :: hvd.size()] for array in digits)
    hits = tf.argmax(model(images[..., None]), 1) == labels
    count = hvd.allreduce(tf.reduce_sum(tf.cast(hits, tf.int64)), op=hvd.Sum, name="hits")
    return int(count) / len(digits[1])


def speed_alone(data: tf.data.Dataset, args: argparse.Namespace) -> float:
    """Return images/s of the first process alone; the others wait, and return nan."""
    speeds = [math.nan]
    if hvd.rank() == 0:
        step = make_step(lenet5(), tf.keras.optimizers.SGD(args.lr, momentum=0.9), shared=False)
        speeds = [train_epoch(step, data, args, first=False)[1] for _ in range(3)]
    hvd.barrier()
    return typical(speeds)


def typical(speeds: list[float]) -> float:
    """Return the median of all epochs but the first, which includes what happens only once."""
    return statistics.median(speeds[1:] or speeds)


def say(text: str) -> None:
    """Print on the first process only."""
    if hvd.rank() == 0:
        print(text, flush=True)


def main() -> None:
    args = parse_arguments()
    hvd.init()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    # Weights, which are broadcast, come from the generators of Keras, not from those of TensorFlow.
    tf.keras.utils.set_random_seed(args.seed + hvd.rank())
    train_set, test_set, source = load_arrays(args.data_dir)
    say(f"Data: {source}: {len(train_set[1])} to train, {len(test_set[1])} to test")
    mine = share(train_set, args)

    model = lenet5()
    # A step follows the average gradient of all processes, so it can be that many times longer.
    optimizer = tf.keras.optimizers.SGD(args.lr * hvd.size(), momentum=0.9)
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)
    if args.checkpoint and hvd.rank() == 0:
        checkpoint.restore(tf.train.latest_checkpoint(args.checkpoint))
    step = make_step(model, optimizer, shared=True)
    speeds = []
    for epoch in range(args.epochs):
        loss, speed = train_epoch(step, mine, args, first=epoch == 0)
        loss = float(hvd.allreduce(loss, name="loss"))
        speeds.append(hvd.size() * speed)
        say(f"epoch {epoch + 1}/{args.epochs}: loss {loss:.4f}, {speeds[-1]:.0f} images/s")
        if args.checkpoint and hvd.rank() == 0:
            checkpoint.save(f"{args.checkpoint}/digits")

    say(f"Test accuracy: {accuracy(model, test_set):.2%}")
    say(f"Speed: {typical(speeds):.0f} images/s over {hvd.size()} processes")
    if args.compare_single:
        alone = speed_alone(mine, args)
        ratio = typical(speeds) / alone
        say(f"Speed-up: {ratio:.2f} over one process alone ({alone:.0f} images/s)")
    hvd.shutdown()


if __name__ == "__main__":
    main()
