"""A worker of a tf.data service, and the compute job's program.

horovodrun -np 2 python -m horovod.tensorflow.data.compute_worker /shared/folder/config.json
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from sirtaki.core.world import lifecycle, state
from sirtaki.tensorflow.data.compute_service import (
    COMPUTE,
    TRAINING,
    TfDataServiceConfig,
    compute_worker_fn,
)
from sirtaki.tensorflow.data.registry import ComputeService
from sirtaki.tensorflow.functions import allgather_object, broadcast_object

_KEY_BYTES = 32


def main(
    dispatchers: int, dispatcher_side: str, filename: str | os.PathLike[str], timeout: float
) -> None:
    """Run one rank of the compute job until its service is shut down.

    It creates the world, and leaves it again, unless the caller has created it.

    Args:
        dispatchers: The number of dispatchers.
        dispatcher_side: "compute" or "training": the job that runs the dispatchers.
        filename: The configuration file, which the training job reads.
        timeout: Seconds to wait for dispatchers and workers.

    Raises:
        ValueError: The dispatchers cannot share the workers evenly.
        TimeoutError: The dispatcher of this worker has not started in time.
    """
    made_here = not state.is_initialized()
    lifecycle.init()
    workers, uneven = divmod(state.size(), dispatchers)
    if uneven:
        raise ValueError(
            f"{state.size()} workers cannot be shared evenly by {dispatchers} dispatchers"
        )
    if state.rank() == 0:
        with _service(dispatchers, workers, dispatcher_side, filename, timeout) as config:
            _work(config)
    else:
        _work(None)
    if made_here:
        lifecycle.shutdown()


@contextlib.contextmanager
def _service(
    dispatchers: int,
    workers: int,
    dispatcher_side: str,
    filename: str | os.PathLike[str],
    timeout: float,
) -> Iterator[TfDataServiceConfig]:
    """Yield the configuration of a compute service; its file exists while the service listens."""
    key = secrets.token_bytes(_KEY_BYTES)
    service = ComputeService(state.addresses()[0], key)
    config = TfDataServiceConfig(
        dispatchers, workers, dispatcher_side, [service.address], key, timeout
    )
    config.write(filename)
    try:
        yield config
    finally:
        Path(filename).unlink(missing_ok=True)
        service.close()


def _work(config: TfDataServiceConfig | None) -> None:
    """Work with the configuration of rank 0, until all ranks have learned of the end."""
    # Names of their own, because the caller's other threads may use the world meanwhile.
    given = None if config is None else config.to_dict()
    shared = broadcast_object(given, name="compute_worker")
    compute_worker_fn(TfDataServiceConfig.from_dict(shared))
    allgather_object(None, name="compute_worker.end")


def parse(program: str, starter: str) -> argparse.Namespace:
    """Parse the arguments of a compute job's program.

    Args:
        program: The program's name.
        starter: The name of its starter, for the help text.
    """
    description = f"The workers of a tf.data service, started {starter}."
    parser = argparse.ArgumentParser(prog=program, description=description)
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
    args = parser.parse_args()
    if args.dispatchers < 1:
        parser.error("--dispatchers must be at least 1")
    return args


if __name__ == "__main__":
    args = parse("python -m horovod.tensorflow.data.compute_worker", "with horovodrun")
    main(args.dispatchers, args.dispatcher_side, args.configfile, args.timeout)
