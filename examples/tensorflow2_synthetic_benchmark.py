"""How many images a second a model trains on in TensorFlow, with random images.

    horovodrun -np 2 python examples/tensorflow2_synthetic_benchmark.py --model small-cnn

Compare with one process: `python examples/tensorflow2_synthetic_benchmark.py`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable

import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

import horovod.tensorflow as hvd

CLASSES = 1000
PIXELS = 64  # an image has this many rows and columns, in three colours
CONFIDENCE = 1.96  # standard deviations that hold 95 % of normal samples


def small_cnn() -> keras.Model:
    """Little to send for what there is to compute."""
    model = keras.Sequential([keras.Input((PIXELS, PIXELS, 3))])
    for filters in (32, 64, 128, 256):
        model.add(layers.Conv2D(filters, 3, padding="same", use_bias=False))
        model.add(layers.BatchNormalization())
        model.add(layers.ReLU())
        model.add(layers.MaxPooling2D())
    model.add(layers.GlobalAveragePooling2D())
    model.add(layers.Dense(CLASSES))
    return model


def mlp() -> keras.Model:
    """Much to send for what there is to compute: 15 million parameters."""
    return keras.Sequential(
        [
            keras.Input((PIXELS, PIXELS, 3)),
            layers.Flatten(),
            layers.Dense(1024, activation="relu"),
            layers.Dense(1024, activation="relu"),
            layers.Dense(CLASSES),
        ]
    )


MODELS: dict[str, Callable[[], keras.Model]] = {"small-cnn": small_cnn, "mlp": mlp}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=MODELS, default="small-cnn")
    parser.add_argument("--batch-size", type=int, default=32, help="images a step and process")
    parser.add_argument("--num-warmup-batches", type=int, default=5)
    parser.add_argument("--num-batches-per-iter", type=int, default=5)
    parser.add_argument("--num-iters", type=int, default=5, help="measurements")
    parser.add_argument("--fp16-allreduce", action="store_true", help="send gradients as float16")
    parser.add_argument("--use-adasum", action="store_true", help="combine gradients by Adasum")
    parser.add_argument("--eager", action="store_true", help="do not compile the training step")
    return parser.parse_args()


def share_cores() -> None:
    """Compute with this process's part of the host's cores; before TensorFlow computes."""
    part = len(os.sched_getaffinity(0)) // hvd.local_size()
    # horovodrun says how many they are, for a process that it has bound to its part as well.
    threads = int(os.environ.get("OMP_NUM_THREADS") or max(1, part))
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    # Tensors are exchanged in the host's memory.
    tf.config.set_visible_devices([], "GPU")


def make_step(args: argparse.Namespace) -> Callable[[], None]:
    """Return a step of training; all processes start from one model."""
    model = MODELS[args.model]()
    # An average of more gradients allows a longer step; Adasum finds the length by itself.
    optimizer = keras.optimizers.SGD(0.01 * (1 if args.use_adasum else hvd.size()))
    optimizer.build(model.trainable_variables)
    hvd.broadcast_variables(model.variables + optimizer.variables, root_rank=0)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    compression = hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none
    op = hvd.Adasum if args.use_adasum else hvd.Average
    images = tf.random.normal((args.batch_size, PIXELS, PIXELS, 3))
    labels = tf.random.uniform((args.batch_size,), maxval=CLASSES, dtype=tf.int64)

    def step() -> None:
        with tf.GradientTape() as tape:
            loss = loss_of(labels, model(images, training=True))
        tape = hvd.DistributedGradientTape(tape, compression=compression, op=op)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    return step if args.eager else tf.function(step)


def speed(steps: int, batch_size: int, step: Callable[[], None]) -> float:
    """Return images a second of this process over some training steps."""
    start = time.perf_counter()
    for _ in range(steps):
        step()
    return steps * batch_size / (time.perf_counter() - start)


def say(text: str) -> None:
    """Print on the first process only."""
    if hvd.rank() == 0:
        print(text, flush=True)


def main() -> None:
    args = parse_arguments()
    hvd.init()
    share_cores()
    step = make_step(args)
    say(f"Model: {args.model}\nBatch size: {args.batch_size}\nNumber of CPUs: {hvd.size()}")
    say("Running warmup...")
    if args.num_warmup_batches:
        speed(args.num_warmup_batches, args.batch_size, step)
    say("Running benchmark...")
    speeds = []
    for i in range(args.num_iters):
        speeds.append(speed(args.num_batches_per_iter, args.batch_size, step))
        say(f"Iter #{i}: {speeds[-1]:.1f} img/sec per CPU")

    mean, spread = statistics.mean(speeds), CONFIDENCE * statistics.pstdev(speeds)
    n = hvd.size()
    say(f"Img/sec per CPU: {mean:.1f} +-{spread:.1f}")
    say(f"Total img/sec on {n} CPU(s): {n * mean:.1f} +-{n * spread:.1f}")
    hvd.shutdown()


if __name__ == "__main__":
    main()
