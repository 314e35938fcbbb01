"""Ray Train on Sirtaki: `TorchTrainer(loop, torch_config=SirtakiConfig())`.

For loops of other frameworks, use `DataParallelTrainer(loop, backend_config=SirtakiConfig())`. In
the loop, `hvd.init()` joins the other workers, and PyTorch's default group is one of ours.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import ray
from ray.train.torch.config import TorchConfig, _TorchBackend

from sirtaki.autoload import register
from sirtaki.core import placed
from sirtaki.core.world import lifecycle
from sirtaki.rendezvous.world.placement import Placement, placements
from sirtaki.stand_in import NAME


class SirtakiConfig(TorchConfig):  # type: ignore[misc]
    """A backend for Ray Train whose workers are ranks of a world.

    Args:
        timeout_s: The seconds that operations of PyTorch's default group wait for other workers.
    """

    def __init__(self, timeout_s: int = 1800) -> None:
        super().__init__(backend=NAME, timeout_s=timeout_s)

    @property
    def backend_cls(self) -> type[Any]:
        """Return the class that Ray calls when workers start and end."""
        return _Backend


class _Served:
    """The store that a worker serves as long as the process lives."""

    kept = contextlib.ExitStack()


def _node() -> str:
    return str(ray.get_runtime_context().get_node_id())


def _serve(hosts: Sequence[str]) -> list[Placement]:
    _Served.kept.close()
    return _Served.kept.enter_context(placements(len(hosts), hosts))


def _take(place: Placement, node: str) -> None:
    register()
    placed.take(place, node)


class _Backend(_TorchBackend):  # type: ignore[misc]
    """See `SirtakiConfig`."""

    def on_start(self, worker_group: Any, backend_config: SirtakiConfig) -> None:
        """Assign the workers their places, and create PyTorch's group."""
        nodes = worker_group.execute(_node)
        places = worker_group.execute_single(0, _serve, nodes)
        ray.get(
            [
                worker_group.execute_single_async(number, _take, place, nodes[number])
                for number, place in enumerate(places)
            ]
        )
        super().on_start(worker_group, backend_config)

    def on_shutdown(self, worker_group: Any, backend_config: SirtakiConfig) -> None:
        """Leave the world, then do the same as Ray for PyTorch."""
        worker_group.execute(lifecycle.shutdown)
        super().on_shutdown(worker_group, backend_config)
