"""The settings of `RayExecutor`."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

S = TypeVar("S", bound="RaySettings")


@dataclass
class RaySettings:
    """The placement and connection settings of workers.

    Attributes:
        nics: The network interfaces on which rank 0 is reached; default: all that are up.
        verbose: Accepted: Ray controls whether the workers' output is shown.
        key: Unused: each start has a secret of its own.
        ssh_port: Unused: Ray starts the processes.
        ssh_identity_file: Unused.
        timeout_s: The seconds that the workers may take to meet.
        placement_group_timeout_s: The seconds that the cluster may take to find room for them.
        elastic: Whether the job continues after the loss of a worker.
    """

    nics: Any = None
    verbose: int = 1
    key: str | None = field(default=None, repr=False)
    ssh_port: int | None = None
    ssh_identity_file: str | None = None
    timeout_s: float = 300
    placement_group_timeout_s: float = 100
    elastic: bool = False

    @property
    def start_timeout(self) -> float:
        """Horovod's other name of `timeout_s`."""
        return self.timeout_s

    @classmethod
    def of(cls: type[S], given: object) -> S:
        """Return the settings from any object, such as Horovod's own; defaults for missing ones."""
        default = cls()
        names = default.__dict__.keys()
        return cls(**{name: getattr(given, name, getattr(default, name)) for name in names})

    def interfaces(self) -> list[str]:
        """Return `nics` as a list."""
        if self.nics is None:
            return []
        names = self.nics.split(",") if isinstance(self.nics, str) else self.nics
        return sorted(name.strip() for name in names)


@dataclass
class ElasticRaySettings(RaySettings):
    """The settings of an elastic job.

    Attributes:
        min_num_proc: The minimum number of processes in a world.
        max_num_proc: The maximum number; None: as many as the cluster takes.
        reset_limit: The maximum number of new worlds after the first; None for any number.
        elastic_timeout: The seconds that a world with enough processes may take to form.
        cooldown_range: The seconds for which a node gets no new process after a failure: the
            initial and the maximum value; None for 1 and 60.
        discovery: Provides `find_available_hosts_and_slots()`, for `override_discovery=False`.
    """

    timeout_s: float = 30
    elastic: bool = True
    min_num_proc: int = 1
    max_num_proc: int | None = None
    reset_limit: int | None = None
    elastic_timeout: float = 600
    cooldown_range: tuple[float, float] | None = None
    discovery: Any = None


def write_key(path: str | None, text: str | None) -> None:
    """Write an ssh key from a Horovod program, for the program's other uses of it."""
    if path is None or text is None or Path(path).exists():
        return
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
