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


def session_config() -> tf.ConfigProto:
    threads = int(os.environ.get("OMP_NUM_THREADS", "1"))
    return tf.ConfigProto(intra_op_parallelism_threads=threads, inter_op_parallelism_threads=2)


def main() -> None:
    arguments = parse()
    hvd.init()
    train, test, source = load_arrays(arguments.data_dir)
    images, labels = tf.data.make_one_shot_iterator(batches(train, arguments.batch_size)).get_next()
    scores = lenet(images)
    loss = tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scores)
    )
    optimizer = hvd.DistributedOptimizer(
        tf.train.AdamOptimizer(arguments.learning_rate * hvd.size())
    )
    step = tf.train.get_or_create_global_step()
    learn = optimizer.minimize(loss, global_step=step)

    given = tf.placeholder(tf.float32, [None, 28, 28])
    with tf.variable_scope(tf.get_variable_scope(), reuse=True):
        guesses = tf.argmax(lenet(given), axis=1)

    steps = arguments.steps // hvd.size()
    hooks = [hvd.BroadcastGlobalVariablesHook(0), tf.train.StopAtStepHook(last_step=steps)]
    if hvd.rank() == 0:
        hooks.append(Accuracy(guesses, given, test))
    checkpoints = arguments.checkpoint_dir if hvd.rank() == 0 else None
    began = time.perf_counter()
    with tf.train.MonitoredTrainingSession(
        checkpoint_dir=checkpoints, hooks=hooks, config=session_config()
    ) as session:
        while not session.should_stop():
            session.run(learn)
    seconds = time.perf_counter() - began
    if hvd.rank() == 0:
        images_a_second = hvd.size() * steps * arguments.batch_size / seconds
        print(f"data: {source}")
        print(f"{hvd.size()} ranks, {steps} steps: {images_a_second:.0f} images/s")


if __name__ == "__main__":
    main()
