"""The actor of a process in an elastic job."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ray

from sirtaki.core import elastic, placed
from sirtaki.core.world import lifecycle
from sirtaki.launch.elastic import beat_watch
from sirtaki.launch.elastic.settings import DEFAULT_UNRESPONSIVE
from sirtaki.ray import ray_logger
from sirtaki.ray.worker import BaseHorovodWorker
from sirtaki.rendezvous.trust.secret import sealed_secret


@dataclass(frozen=True)
class Ended:
    """The outcome of a process that succeeded, or that left at the job's request.

    Attributes:
        code: The exit code; 0 for a function that has returned.
        rank: Its rank in the last world; -1 for none.
        returned: Whether the function has returned.
        value: Its return value.
    """

    code: int = 0
    rank: int = -1
    returned: bool = False
    value: Any = None


class ElasticWorker(BaseHorovodWorker):
    """One process of an elastic job: `hvd.init()` requests its place from the job's driver."""

    def train(
        self, call: bytes, secret: bytes, variables: Mapping[str, Any], gpus: int, queue: Any
    ) -> Ended:
        """Call a function in the worlds of a job.

        Args:
            call: The pickled function, which takes no arguments.
            secret: The job's secret.
            variables: Environment variables, with the address of the driver.
            gpus: The number of visible GPUs of the node; 0 for those assigned by Ray.
            queue: The destination of `ray_logger.log`, or None.
        """
        # Kept as long as the process lives, and hidden from others.
        self._secret = sealed_secret(secret)
        own = {
            "SIRTAKI_SECRET_FILE": f"/proc/{os.getpid()}/fd/{self._secret.fileno()}",
            "SIRTAKI_HEARTBEAT_FILE": beat_watch.start(DEFAULT_UNRESPONSIVE),
        }
        if gpus:
            # A local rank may change with the world.
            own["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(gpus)))
        self.update_env_vars({**own, **variables})
        ray_logger.configure(queue)
        try:
            value = placed.call(ray.cloudpickle.loads(call))
        except SystemExit as error:
            if not elastic.has_left():
                # Ray would interpret it as the normal end of the actor.
                raise RuntimeError(f"the function ended with SystemExit: {error.code}") from error
            return Ended(error.code if isinstance(error.code, int) else 1)
        rank = elastic.current_place().topology.rank if elastic.is_elastic() else -1
        lifecycle.shutdown()
        return Ended(0, rank, True, value)
