"""LeNet-5 in the style of TensorFlow 1: graphs, a monitored session, hooks.

horovodrun -np 2 python examples/tensorflow1_style_mnist.py

Scripts of TensorFlow 1 change in two lines: the import of TensorFlow, and `disable_v2_behavior`.
"""

from __future__ import annotations

import argparse
import os
import time

import numpy as np
import tensorflow.compat.v1 as tf
from mnist_arrays import Digits, load_arrays

import horovod.tensorflow as hvd

tf.disable_v2_behavior()

CLASSES = 10


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=400, help="of all ranks together (400)")
    parser.add_argument("--batch-size", type=int, default=32, help="of each rank (32)")
    parser.add_argument("--learning-rate", type=float, default=0.001, help="of one rank (0.001)")
    parser.add_argument("--data-dir", help="folder with MNIST's IDX files; default: small digits")
    parser.add_argument(
        "--compare-single",
        action="store_true",
        help="measure one process alone as well, and print the speed-up over it",
    )
    parser.add_argument("--checkpoint-dir", help="where rank 0 keeps checkpoints; default: nowhere")
    return parser.parse_args()


def weights(name: str, *shape: int) -> tf.Tensor:
    return tf.get_variable(name, shape, initializer=tf.glorot_uniform_initializer())


def lenet(images: tf.Tensor) -> tf.Tensor:
    """Return the classes' scores for images of 28x28 pixels."""
    x = tf.reshape(images, [-1, 28, 28, 1])
    x = tf.nn.relu(tf.nn.conv2d(x, weights("conv1", 5, 5, 1, 6), padding="SAME"))
    x = tf.nn.max_pool2d(x, 2, 2, "VALID")
    x = tf.nn.relu(tf.nn.conv2d(x, weights("conv2", 5, 5, 6, 16), padding="VALID"))
    x = tf.reshape(tf.nn.max_pool2d(x, 2, 2, "VALID"), [-1, 400])
    for number, (inputs, outputs) in enumerate([(400, 120), (120, 84)], start=1):
        bias = tf.get_variable(f"bias{number}", [outputs], initializer=tf.zeros_initializer())
        x = tf.nn.relu(x @ weights(f"dense{number}", inputs, outputs) + bias)
    return x @ weights("dense3", 84, CLASSES)


def batches(digits: Digits, batch_size: int) -> tf.data.Dataset:
    """Return this rank's share of the digits, for ever, in an order of its own."""
    data = tf.data.Dataset.from_tensor_slices(digits).shard(hvd.size(), hvd.rank())
    return data.shuffle(2048, seed=hvd.rank()).repeat().batch(batch_size)


class Accuracy(tf.train.SessionRunHook):
    """Tells, at the end, how many test digits are recognised."""

    def __init__(self, guesses: tf.Tensor, given: tf.Tensor, test: Digits) -> None:
        self.guesses, self.given, self.test = guesses, given, test

    def end(self, session: tf.Session) -> None:
        images, labels = self.test
        right = session.run(self.guesses, {self.given: images}) == labels
        print(f"test accuracy: {np.mean(right):.1%}")


class Speed(tf.train.SessionRunHook):
    """Measures images/s of this process, from the second step on: the first is slow."""

    def __init__(self, batch_size: int) -> None:
        self.batch_size, self.steps, self.began, self.last = batch_size, -1, 0.0, 0.0

    def after_run(self, context: tf.train.SessionRunContext, values: object) -> None:
        self.last = time.perf_counter()
        self.began = self.began or self.last
        self.steps += 1

    def images_a_second(self) -> float:
        return self.steps * self.batch_size / (self.last - self.began)


def speed_alone(train: Digits, arguments: argparse.Namespace, steps: int) -> float:
    """Return images/s of this process alone, with a graph of its own."""
    speed = Speed(arguments.batch_size)
    with tf.Graph().as_default():
        learn = minimize(tf.train.AdamOptimizer(), train, arguments.batch_size)
        hooks = [speed, tf.train.StopAtStepHook(last_step=steps)]
        with tf.train.MonitoredTrainingSession(hooks=hooks, config=session_config()) as session:
            while not session.should_stop():
                session.run(learn)
    return speed.images_a_second()


def minimize(optimizer: tf.train.Optimizer, digits: Digits, batch_size: int) -> tf.Operation:
    """Return the operation that learns from this rank's next batch."""
    images, labels = tf.data.make_one_shot_iterator(batches(digits, batch_size)).get_next()
    loss = tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=lenet(images))
    )
    return optimizer.minimize(loss, global_step=tf.train.get_or_create_global_step())


def session_config() -> tf.ConfigProto:
    threads = int(os.environ.get("OMP_NUM_THREADS", "1"))
    return tf.ConfigProto(intra_op_parallelism_threads=threads, inter_op_parallelism_threads=2)


def main() -> None:
    arguments = parse()
    hvd.init()
    train, test, source = load_arrays(arguments.data_dir)
    optimizer = hvd.DistributedOptimizer(
        tf.train.AdamOptimizer(arguments.learning_rate * hvd.size())
    )
    learn = minimize(optimizer, train, arguments.batch_size)

    given = tf.placeholder(tf.float32, [None, 28, 28])
    with tf.variable_scope(tf.get_variable_scope(), reuse=True):
        guesses = tf.argmax(lenet(given), axis=1)

    steps = arguments.steps // hvd.size()
    speed = Speed(arguments.batch_size)
    hooks = [hvd.BroadcastGlobalVariablesHook(0), tf.train.StopAtStepHook(last_step=steps), speed]
    if hvd.rank() == 0:
        hooks.append(Accuracy(guesses, given, test))
    checkpoints = arguments.checkpoint_dir if hvd.rank() == 0 else None
    with tf.train.MonitoredTrainingSession(
        checkpoint_dir=checkpoints, hooks=hooks, config=session_config()
    ) as session:
        while not session.should_stop():
            session.run(learn)
    if hvd.rank() == 0:
        print(f"data: {source}")
        together = hvd.size() * speed.images_a_second()
        print(f"{hvd.size()} ranks, {steps} steps: {together:.0f} images/s")
        if arguments.compare_single:
            alone = speed_alone(train, arguments, steps)
            print(f"Speed-up: {together / alone:.2f} over one process alone ({alone:.0f} images/s)")


if __name__ == "__main__":
    main()
