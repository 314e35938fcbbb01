"""The nodes of a cluster, and the number of processes for each."""

from __future__ import annotations

from dataclasses import dataclass

import ray

_SHOWN_DIGITS = 8


@dataclass(frozen=True)
class Share:
    """The share of a node for a process.

    Attributes:
        cpus: The reserved CPUs.
        gpus: The reserved GPUs; 0 for none.
    """

    cpus: float = 1
    gpus: float = 0

    @staticmethod
    def of(cpus: float, use_gpu: bool, gpus: float | None, name: str) -> Share:
        """Check the arguments of an executor.

        Args:
            cpus: The CPUs of each process.
            use_gpu: Whether processes have GPUs.
            gpus: The GPUs of each process; None for one.
            name: The name of the GPU argument, for the error.

        Raises:
            ValueError: The arguments contradict each other.
        """
        if gpus is not None and not use_gpu:
            raise ValueError(f"{name} is set, but use_gpu is False. Set use_gpu=True.")
        if gpus is not None and gpus < 1:
            raise ValueError(f"{name} must be >= 1: Got {gpus}.")
        return Share(cpus, (gpus or 1) if use_gpu else 0)


@dataclass(frozen=True)
class Node:
    """A live node.

    Attributes:
        id: Ray's name of the node.
        address: The address of its machine, which other nodes may share.
        hostname: The machine's name.
        cpus: The CPUs that Ray assigns there.
        gpus: The GPUs that Ray assigns there.
    """

    id: str
    address: str
    hostname: str
    cpus: float
    gpus: float

    @property
    def name(self) -> str:
        """A name that is unique, and shows people where the node is."""
        return f"{self.address.replace(':', '_')}-{self.id[:_SHOWN_DIGITS]}"

    def slots(self, share: Share) -> int:
        """Return the number of processes for this node."""
        slots = self.cpus // share.cpus if share.cpus else float("inf")
        if share.gpus:
            slots = min(slots, self.gpus // share.gpus)
        return int(min(slots, 10**6))

    def is_called(self, host: str) -> bool:
        """Return whether a user may mean this node by a name."""
        return host in (self.id, self.name, self.address, self.hostname)


def alive() -> list[Node]:
    """Return the current nodes, sorted by address.

    Raises:
        RuntimeError: Ray is not running.
    """
    if not ray.is_initialized():
        # Otherwise Ray would start a cluster of its own, even while a program ends.
        raise RuntimeError("Ray is not running here: call ray.init() first")
    found = [
        Node(
            node["NodeID"],
            node["NodeManagerAddress"],
            node["NodeManagerHostname"],
            node["Resources"].get("CPU", 0),
            node["Resources"].get("GPU", 0),
        )
        for node in ray.nodes()
        if node["Alive"]
    ]
    return sorted(found, key=lambda node: (node.address, node.id))


def slots_by_name(share: Share) -> dict[str, int]:
    """Return the number of processes for each node, without nodes that have none."""
    return {node.name: slots for node in alive() if (slots := node.slots(share))}
