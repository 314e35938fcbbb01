"""Settings of elastic jobs, as an object for custom launchers to fill in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from horovod.runner.common.util.settings import BaseSettings


@dataclass
class ElasticSettings(BaseSettings):
    """Settings of a job whose processes may join and leave.

    Attributes:
        discovery: A `HostDiscovery`.
        min_num_proc: The minimum number of processes in a world.
        max_num_proc: The maximum number; None: as many as hosts have slots.
        elastic_timeout: The seconds that a world with enough processes may take to form.
        reset_limit: The maximum number of new worlds after the first; None: any number.
        cooldown_range: The seconds for which a host gets no process after a failure.
    """

    discovery: Any = None
    min_num_proc: int | None = None
    max_num_proc: int | None = None
    elastic_timeout: float | None = None
    reset_limit: int | None = None
    cooldown_range: tuple[int, int] | None = None
    elastic: bool = True
