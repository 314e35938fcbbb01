"""The actor in which a process of an elastic job runs."""

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
    """How a process has ended well, or left because the job wanted it to.

    Attributes:
        code: The exit code; 0 for a function that has returned.
        rank: Of the last world; -1 for none.
        returned: Whether the function has returned.
        value: What it returned.
    """

    code: int = 0
    rank: int = -1
    returned: bool = False
    value: Any = None


class ElasticWorker(BaseHorovodWorker):
    """One process of an elastic job: `hvd.init()` asks the job's driver for a place."""

    def train(
        self, call: bytes, secret: bytes, variables: Mapping[str, Any], gpus: int, queue: Any
    ) -> Ended:
        """Call a function in the worlds of a job.

        Args:
            call: The pickled function, which takes no arguments.
            secret: The job's.
            variables: Of the environment; they tell where the driver is.
            gpus: How many GPUs of the node are seen; 0 for those that Ray gives.
            queue: Where `ray_logger.log` sends what it is given, or None.
        """
        # As long as the process lives, and known to no other.
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
                # Ray would take it for the end of an actor that has done its work.
                raise RuntimeError(f"the function ended with SystemExit: {error.code}") from error
            return Ended(error.code if isinstance(error.code, int) else 1)
        rank = elastic.current_place().topology.rank if elastic.is_elastic() else -1
        lifecycle.shutdown()
        return Ended(0, rank, True, value)
