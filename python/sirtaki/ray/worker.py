"""The actor of a rank."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import ray

import sirtaki
from sirtaki.core import placed
from sirtaki.core.world import lifecycle
from sirtaki.ray import ray_logger
from sirtaki.rendezvous.world.placement import Placement, placements


class BaseHorovodWorker:
    """One rank of a `RayExecutor`: an actor that calls the functions passed to it.

    Args:
        world_rank: The rank at its creation; its place may change it.
        world_size: The number of ranks.
    """

    executable: Any = None

    def __init__(self, world_rank: int = 0, world_size: int = 1) -> None:
        os.environ["HOROVOD_HOSTNAME"] = self.node_id()
        os.environ["HOROVOD_RANK"] = str(world_rank)
        os.environ["HOROVOD_SIZE"] = str(world_size)
        self._served = ExitStack()

    def node_id(self) -> str:
        """Return Ray's name of the node, which differs from the machine's."""
        return str(ray.get_runtime_context().get_node_id())

    def introduce(self) -> tuple[str, str, str]:
        """Return the node, the machine's name, and the installed version of Sirtaki."""
        return self.node_id(), self.hostname(), sirtaki.__version__

    def hostname(self) -> str:
        """Return the machine's name."""
        return socket.gethostname()

    def get_gpu_ids(self) -> list[Any]:
        """Return the GPUs that Ray has assigned to this actor."""
        return list(ray.get_gpu_ids())

    def update_env_vars(self, env_vars: Mapping[str, Any]) -> None:
        """Set variables of the environment."""
        os.environ.update({name: str(value) for name, value in env_vars.items()})

    def env_vars(self) -> dict[str, str]:
        """Return the environment."""
        return dict(os.environ)

    def set_queue(self, queue: Any) -> None:
        """Set the destination of `ray_logger.log`."""
        ray_logger.configure(queue)

    def serve(self, hosts: Sequence[str], interfaces: Sequence[str]) -> list[Placement]:
        """Serve the store where the ranks meet, while this actor lives or until the next call.

        Args:
            hosts: The node of each rank.
            interfaces: The interfaces to listen on; empty for all.

        Returns:
            A placement for each rank. Its holder can join; Ray sends it.
        """
        self._served.close()
        context = placements(len(hosts), hosts, interfaces=interfaces)
        return self._served.enter_context(context)

    def take_place(self, placement: Placement, variables: Mapping[str, Any]) -> None:
        """Become a rank: `hvd.init()` then joins the others."""
        placed.take(placement, self.node_id())
        self.update_env_vars(variables)

    def start_executable(
        self,
        executable_cls: Callable[..., Any] | None = None,
        executable_args: Sequence[Any] | None = None,
        executable_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        """Create the object that `execute` passes to its functions."""
        if executable_cls is not None:
            arguments = executable_args or (), executable_kwargs or {}
            self.executable = placed.call(executable_cls, *arguments[0], **arguments[1])

    def execute(self, func: Callable[[Any], Any]) -> Any:
        """Return the result of `func` on this actor's object."""
        return placed.call(func, self.executable)

    def run(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return the result of `func(*args, **kwargs)`."""
        return placed.call(func, *args, **kwargs)

    def leave(self) -> None:
        """Leave the world."""
        lifecycle.shutdown()
