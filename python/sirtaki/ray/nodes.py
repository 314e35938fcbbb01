"""The nodes of a cluster, and how many processes each takes."""

from __future__ import annotations

from dataclasses import dataclass

import ray

_SHOWN_DIGITS = 8


@dataclass(frozen=True)
class Share:
    """What a process has of its node.

    Attributes:
        cpus: What Ray reserves of the CPUs.
        gpus: What it reserves of the GPUs; 0 for none.
    """

    cpus: float = 1
    gpus: float = 0

    @staticmethod
    def of(cpus: float, use_gpu: bool, gpus: float | None, name: str) -> Share:
        """Check what an executor is given.

        Args:
            cpus: Of each process.
            use_gpu: Whether processes have GPUs.
            gpus: How many; None for one.
            name: Of the argument for GPUs, for the error.

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
    """A node that is alive.

    Attributes:
        id: Ray's name of it.
        address: Of its machine, on which other nodes may be.
        hostname: The machine's name.
        cpus: How many Ray gives away there.
        gpus: How many Ray gives away there.
    """

    id: str
    address: str
    hostname: str
    cpus: float
    gpus: float

    @property
    def name(self) -> str:
        """What tells it apart from all others, and tells people where it is."""
        return f"{self.address.replace(':', '_')}-{self.id[:_SHOWN_DIGITS]}"

    def slots(self, share: Share) -> int:
        """Return how many processes it takes."""
        slots = self.cpus // share.cpus if share.cpus else float("inf")
        if share.gpus:
            slots = min(slots, self.gpus // share.gpus)
        return int(min(slots, 10**6))

    def is_called(self, host: str) -> bool:
        """Tell whether a user may mean it by this name."""
        return host in (self.id, self.name, self.address, self.hostname)


def alive() -> list[Node]:
    """Return the nodes that are there now, sorted by their addresses.

    Raises:
        RuntimeError: Ray is not there.
    """
    if not ray.is_initialized():
        # Else Ray would start a cluster of its own, even while a program ends.
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
    """Return how many processes each node takes; nodes that take none are left out."""
    return {node.name: slots for node in alive() if (slots := node.slots(share))}
