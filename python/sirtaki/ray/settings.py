"""What `RayExecutor` can be told."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


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

    @staticmethod
    def of(given: object) -> RaySettings:
        """Return the settings that any object has, such as Horovod's own; defaults for others."""
        default = RaySettings()
        names = default.__dict__.keys()
        return RaySettings(**{name: getattr(given, name, getattr(default, name)) for name in names})

    def interfaces(self) -> list[str]:
        """Return `nics` as a list."""
        if self.nics is None:
            return []
        names = self.nics.split(",") if isinstance(self.nics, str) else self.nics
        return sorted(name.strip() for name in names)


def write_key(path: str | None, text: str | None) -> None:
    """Write an ssh key that Horovod's programs hand over, for what else they do with it."""
    if path is None or text is None or Path(path).exists():
        return
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
