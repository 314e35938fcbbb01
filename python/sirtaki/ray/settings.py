"""What `RayExecutor` can be told."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

S = TypeVar("S", bound="RaySettings")


@dataclass
class RaySettings:
    """How workers are placed and reached.

    Attributes:
        nics: The network interfaces at which rank 0 is reached; default: all that are up.
        verbose: Whether the workers' output is shown, which Ray decides; kept for programs.
        key: Not used: each start has a secret of its own.
        ssh_port: Not used: Ray starts the processes.
        ssh_identity_file: Not used.
        timeout_s: How many seconds the workers may take to meet.
        placement_group_timeout_s: How many seconds the cluster may take to find room for them.
        elastic: Whether the job goes on when a worker is lost.
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
        """Return the settings that any object has, such as Horovod's own; defaults for others."""
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
    """How an elastic job goes on.

    Attributes:
        min_num_proc: How many processes a world has at least.
        max_num_proc: How many it has at most; None: as many as the cluster takes.
        reset_limit: How many new worlds there may be after the first; None for any number.
        elastic_timeout: How many seconds a world with enough processes may take to form.
        cooldown_range: For how many seconds a node takes no new process after a failure, at first
            and at most; None for 1 and 60.
        discovery: Has `find_available_hosts_and_slots()`, for `override_discovery=False`.
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
    """Write an ssh key that Horovod's programs hand over, for what else they do with it."""
    if path is None or text is None or Path(path).exists():
        return
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
