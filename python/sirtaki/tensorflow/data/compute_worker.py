"""A worker of a tf.data service, and the compute job's program.

horovodrun -np 2 python -m horovod.tensorflow.data.compute_worker /shared/folder/config.json
"""

from __future__ import annotations

import argparse
import contextlib
import secrets
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import tensorflow as tf

from sirtaki.core import state
from sirtaki.tensorflow.data.compute_service import (
    COMPUTE,
    TRAINING,
    TfDataServiceConfig,
    own_address,
    start_dispatcher,
)
from sirtaki.tensorflow.data.registry import ComputeService
from sirtaki.tensorflow.functions import broadcast_object
from sirtaki.tensorflow.mpi_ops import barrier

_KEY_BYTES = 32


def compute_worker_fn(compute_config: TfDataServiceConfig) -> None:
    """Work for a tf.data service until somebody shuts it down.

    Every rank of the compute job calls it, after `init`; with dispatchers in the compute job, the
    first ranks run these, too.

    Args:
        compute_config: The same on all ranks.

    Raises:
        TimeoutError: The dispatcher of this worker has not come in time.
        ConnectionError, PermissionError: The compute service is not there, or has another key.
    """
    client = compute_config.compute_client()
    rank = state.rank()
    dispatcher = None
    if compute_config.dispatcher_side == COMPUTE and rank < compute_config.dispatchers:
        dispatcher = start_dispatcher(client, rank)
    worker, own = divmod(rank, compute_config.dispatchers)
    config = tf.data.experimental.service.WorkerConfig(
        dispatcher_address=client.wait_for_dispatcher(own),
        worker_address=own_address("%port%"),  # TensorFlow puts its own in
    )
    server = tf.data.experimental.service.WorkerServer(config)
    client.register_worker(own, worker)
    client.wait_for_shutdown()
    del server, dispatcher  # which ends them, the worker first


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one rank of the compute job; return its exit status."""
    args = _parse(arguments)
    state.init()
    workers, uneven = divmod(state.size(), args.dispatchers)
    if uneven:
        raise ValueError(
            f"{state.size()} workers cannot be shared evenly by {args.dispatchers} dispatchers"
        )
    if state.rank() == 0:
        with _service(args, workers) as config:
            _work(config)
    else:
        _work(None)
    state.shutdown()
    return 0


@contextlib.contextmanager
def _service(args: argparse.Namespace, workers: int) -> Iterator[TfDataServiceConfig]:
    """Give the configuration of a compute service; its file is there as long as it listens."""
    key = secrets.token_bytes(_KEY_BYTES)
    service = ComputeService(state.addresses()[0], key)
    config = TfDataServiceConfig(
        args.dispatchers, workers, args.dispatcher_side, [service.address], key, args.timeout
    )
    config.write(args.configfile)
    try:
        yield config
    finally:
        Path(args.configfile).unlink(missing_ok=True)
        service.close()


def _work(config: TfDataServiceConfig | None) -> None:
    """Work with the configuration of rank 0, until all ranks have heard of the end."""
    shared = broadcast_object(None if config is None else config.to_dict())
    compute_worker_fn(TfDataServiceConfig.from_dict(shared))
    barrier()


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m horovod.tensorflow.data.compute_worker",
        description="One worker of a tf.data service; start it on several ranks with horovodrun.",
    )
    parser.add_argument("configfile", help="written here, for the training job to read")
    parser.add_argument("--dispatchers", type=int, default=1, help="how many (1)")
    parser.add_argument(
        "--dispatcher-side",
        choices=(COMPUTE, TRAINING),
        default=COMPUTE,
        help="in which job they run (compute)",
    )
    parser.add_argument(
        "--timeout", type=float, default=60, help="seconds to wait for what is to register (60)"
    )
    args = parser.parse_args(arguments)
    if args.dispatchers < 1:
        parser.error("--dispatchers must be at least 1")
    return args


if __name__ == "__main__":
    sys.exit(main())
