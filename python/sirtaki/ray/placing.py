"""Placement of workers: placement groups, and ranks by node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

import sirtaki
from sirtaki.ray.nodes import Share

_TIMED_OUT = (
    "Placement group creation timed out. Make sure your cluster either has enough resources or "
    "use an autoscaling cluster. Asked for {count} times {bundle} ({strategy}); the cluster has "
    "{resources}, of which {free} are free."
)
_ANY_BUNDLE = -1


@dataclass(frozen=True)
class Demand:
    """The needs of workers; `hosts` is 0 if they may run on any node.

    Attributes:
        workers: The number of workers.
        hosts: The number of nodes, with equally many workers on each.
        share: The share of a node for each worker.
    """

    workers: int
    hosts: int
    share: Share

    @property
    def per_host(self) -> int:
        """Return the number of workers per bundle."""
        return self.workers // self.hosts if self.hosts else 1

    def bundles(self) -> list[dict[str, float]]:
        """Return the bundles requested from the cluster."""
        bundle = {"CPU": self.share.cpus * self.per_host}
        if self.share.gpus:
            bundle["GPU"] = self.share.gpus * self.per_host
        return [dict(bundle) for _ in range(self.hosts or self.workers)]

    @property
    def strategy(self) -> str:
        """Return Ray's strategy of spreading the bundles."""
        return "STRICT_SPREAD" if self.hosts else "PACK"


class Room:
    """A placement group for workers, either an existing one or a new one.

    Args:
        demand: The needs of the workers.
        timeout: The seconds that the cluster may take to find room.
        use_current: Whether to use the group in which the program runs, if there is one.

    Raises:
        TimeoutError: There is no room for the workers.
    """

    def __init__(self, demand: Demand, timeout: float, use_current: bool) -> None:
        self._demand = demand
        current = ray.util.get_current_placement_group() if use_current else None
        self._own = current is None
        self._group = current if current is not None else self._made(timeout)

    def _made(self, timeout: float) -> Any:
        bundles, strategy = self._demand.bundles(), self._demand.strategy
        group = placement_group(bundles, strategy=strategy)
        # Its ready() is a task, for which Ray may start a process.
        if group.wait(timeout):
            return group
        remove_placement_group(group)
        raise TimeoutError(
            _TIMED_OUT.format(
                count=len(bundles),
                bundle=bundles[0],
                strategy=strategy,
                resources=ray.cluster_resources(),
                free=ray.available_resources(),
            )
        )

    def options(self, worker: int) -> dict[str, Any]:
        """Return the options for creating a worker's actor."""
        bundle = worker // self._demand.per_host if self._own else _ANY_BUNDLE
        return {
            "num_cpus": self._demand.share.cpus,
            "num_gpus": self._demand.share.gpus,
            "scheduling_strategy": PlacementGroupSchedulingStrategy(
                self._group, placement_group_bundle_index=bundle
            ),
        }

    def close(self) -> None:
        """Remove the group, with the actors in it, unless it existed before."""
        if self._own:
            remove_placement_group(self._group)


def by_node(nodes: Sequence[str]) -> list[int]:
    """Return the workers in rank order, with those of a node together.

    Args:
        nodes: The node of each worker, in the order of their creation.
    """
    first = {node: number for number, node in reversed(list(enumerate(nodes)))}
    return sorted(range(len(nodes)), key=lambda worker: first[nodes[worker]])


def require_version(versions: Sequence[str], hosts: Sequence[str]) -> None:
    """Raise a RuntimeError if a worker has another version of Sirtaki than this program.

    Args:
        versions: The version on each rank.
        hosts: The host of each rank.
    """
    for rank, (version, host) in enumerate(zip(versions, hosts, strict=True)):
        if version != sirtaki.__version__:
            raise RuntimeError(
                f"rank {rank} on {host} has Sirtaki {version}, this program {sirtaki.__version__}: "
                "install the same version on all nodes, or give it in runtime_env of ray.init"
            )
