"""TensorFlow's tf.data service between two jobs: one prepares data, the other trains with it."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import tensorflow as tf

from sirtaki.core.world import state
from sirtaki.tensorflow.data.registry import Address, ComputeClient
from sirtaki.tensorflow.ops.dense import barrier

COMPUTE, TRAINING = "compute", "training"

_READ_AGAIN_SECONDS = 0.1
# All ranks send their datasets in the same order: the number identifies shared ones.
_sent = itertools.count()


@dataclass(frozen=True)
class TfDataServiceConfig:
    """The configuration of a tf.data service, shared by both jobs.

    Attributes:
        dispatchers: The number of dispatchers; a training rank uses the one with its rank modulo
            this number.
        workers_per_dispatcher: The number of workers of each.
        dispatcher_side: "compute" or "training": the job that runs the dispatchers.
        addresses: Hosts and ports of the compute service, where members register addresses.
        key: Proves to the compute service that a process belongs to it. Keep it secret.
        timeout: Seconds to wait for dispatchers and workers.

    Raises:
        ValueError: A number is not positive, or the side is invalid.
    """

    dispatchers: int
    workers_per_dispatcher: int
    dispatcher_side: str
    addresses: Sequence[Address]
    key: bytes = field(repr=False)
    timeout: float = 60

    def __post_init__(self) -> None:
        for name in ("dispatchers", "workers_per_dispatcher", "timeout"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive, not {getattr(self, name)}")
        if self.dispatcher_side not in (COMPUTE, TRAINING):
            raise ValueError(
                f"dispatcher_side must be '{COMPUTE}' or '{TRAINING}', not {self.dispatcher_side!r}"
            )

    def compute_client(self, verbose: int = 1) -> ComputeClient:
        """Return a client of the compute service; `verbose` is accepted and ignored."""
        return ComputeClient(self.addresses, self.key, self.timeout)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it, including the key, in a form for JSON."""
        addresses = [list(address) for address in self.addresses]
        key = base64.b64encode(self.key).decode()
        return {**asdict(self), "addresses": addresses, "key": key}

    @staticmethod
    def from_dict(config: Mapping[str, Any]) -> TfDataServiceConfig:
        """Return the configuration from the result of `to_dict`."""
        addresses = [(host, port) for host, port in config["addresses"]]
        key = base64.b64decode(config["key"])
        return TfDataServiceConfig(**{**config, "addresses": addresses, "key": key})

    def write(self, filename: str | os.PathLike[str]) -> None:
        """Write a file that only this user can read; a reader sees all of it or no file."""
        path = Path(filename)
        with tempfile.NamedTemporaryFile(
            "w", prefix=path.name, dir=path.parent, delete=False
        ) as part:
            json.dump(self.to_dict(), part)
        Path(part.name).replace(path)

    @staticmethod
    def read(
        filename: str | os.PathLike[str],
        wait_for_file_creation: bool = False,
        timeout: float = 60,
    ) -> TfDataServiceConfig:
        """Return the configuration in a file.

        Args:
            filename: The file.
            wait_for_file_creation: Whether to wait for the file to appear.
            timeout: The seconds to wait.

        Raises:
            FileNotFoundError: There is no such file, and the call does not wait for it.
            TimeoutError: It has not appeared.
        """
        path, limit = Path(filename), time.monotonic() + timeout
        while wait_for_file_creation and not path.exists():
            if time.monotonic() > limit:
                raise TimeoutError(
                    f"{path} did not appear within {timeout:g} s: is the compute job running, and "
                    "was it given this file, in a folder that both jobs see?"
                )
            time.sleep(_READ_AGAIN_SECONDS)
        return TfDataServiceConfig.from_dict(json.loads(path.read_text()))


@contextlib.contextmanager
def tf_data_service(compute_config: TfDataServiceConfig, rank: int) -> Iterator[str]:
    """Yield the address of a training rank's dispatcher, once all workers are there.

    With dispatchers in the training job, the first ranks run them until all ranks have left the
    context.

    Args:
        compute_config: The configuration written by the compute job.
        rank: This process's rank.

    Yields:
        The service argument of `tf.data.experimental.service.distribute`.

    Raises:
        TimeoutError: A dispatcher or worker has not started in time; it is named.
        ConnectionError, PermissionError: The compute service is unreachable or has another key.
    """
    client = compute_config.compute_client()
    number = rank % compute_config.dispatchers
    in_training = compute_config.dispatcher_side == TRAINING
    dispatcher = None
    if in_training and rank < compute_config.dispatchers:
        dispatcher = start_dispatcher(client, rank)
    address = client.wait_for_dispatcher(number)
    client.wait_for_workers(number, compute_config.workers_per_dispatcher)
    yield f"grpc://{address}"
    if in_training:
        barrier()
    del dispatcher  # ends it


def compute_worker_fn(compute_config: TfDataServiceConfig) -> None:
    """Work for a tf.data service until it is shut down.

    Every rank of the compute job calls it, after `init`; with dispatchers in the compute job, the
    first ranks also run these.

    Args:
        compute_config: The same on all ranks.

    Raises:
        TimeoutError: The dispatcher of this worker has not started in time.
        ConnectionError, PermissionError: The compute service is unreachable or has another key.
    """
    client = compute_config.compute_client()
    rank = state.rank()
    dispatcher = None
    if compute_config.dispatcher_side == COMPUTE and rank < compute_config.dispatchers:
        dispatcher = start_dispatcher(client, rank)
    worker, own = divmod(rank, compute_config.dispatchers)
    config = tf.data.experimental.service.WorkerConfig(
        dispatcher_address=client.wait_for_dispatcher(own),
        worker_address=own_address("%port%"),  # TensorFlow inserts its own
    )
    server = tf.data.experimental.service.WorkerServer(config)
    client.register_worker(own, worker)
    client.wait_for_shutdown()
    del server, dispatcher  # ends them, the worker first


def start_dispatcher(client: ComputeClient, number: int) -> Any:
    """Return a dispatcher that runs while it is referenced; register its address first."""
    dispatcher = tf.data.experimental.service.DispatchServer()
    port = int(dispatcher.target.rpartition(":")[2])
    client.register_dispatcher(number, own_address(port))
    return dispatcher


def own_address(port: int | str) -> str:
    """Return the address of a port of this process."""
    host = state.addresses()[0]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def send_to_data_service(
    dataset: Any,
    compute_config: TfDataServiceConfig,
    rank: int,
    size: int | None = None,
    processing_mode: str = "distributed_epoch",
    reuse_dataset: bool = False,
    round_robin: bool = False,
) -> Any:
    """Return a dataset whose elements the compute job prepares; also a method of datasets.

    Args:
        dataset: The steps up to here run in the compute job.
        compute_config: The configuration written by the compute job.
        rank: This process's rank in the training job.
        size: The number of ranks in the training job; for `round_robin`.
        processing_mode: "distributed_epoch": the workers share the dataset; "parallel_epochs":
            each has all of it.
        reuse_dataset: Whether the ranks of a dispatcher share the elements. Otherwise each rank
            gets all of them. All ranks send such datasets in the same order.
        round_robin: Whether such ranks take elements in turn, rather than on demand. The dataset
            must be infinite then.

    Raises:
        RuntimeError: The dispatchers run in the training job: use `tf_data_service` there.
        ValueError: `round_robin` without `reuse_dataset` or without `size`.
    """
    if compute_config.dispatcher_side == TRAINING:
        raise RuntimeError(
            "send_to_data_service needs dispatchers in the compute job; with those of the training "
            "job use tf_data_service and tf.data.experimental.service.distribute"
        )
    if round_robin and not (reuse_dataset and size):
        raise ValueError("round_robin=True needs reuse_dataset=True, and size=hvd.size()")
    shared: dict[str, Any] = {}
    if reuse_dataset:
        shared["job_name"] = f"dataset {next(_sent)}"
    if round_robin and size:
        # The ranks with the same dispatcher.
        own = range(rank % compute_config.dispatchers, size, compute_config.dispatchers)
        shared.update(consumer_index=own.index(rank), num_consumers=len(own))
    with tf_data_service(compute_config, rank) as service:
        return dataset.apply(
            tf.data.experimental.service.distribute(processing_mode, service, **shared)
        )


tf.data.Dataset.send_to_data_service = send_to_data_service
