"""Strategies for Lightning's Trainer and Fabric.

Lightning's own strategy for DistributedDataParallel runs the training; one of our groups moves the
data, and a starter other than Lightning has started the processes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from sirtaki.lightning.environment import (
    SirtakiEnvironment,
    fabric_module,
    spare_mpi,
    trainer_module,
)
from sirtaki.stand_in import NAME
from sirtaki.torch.distributed.started import init

_TrainerBase: Any = trainer_module("strategies").DDPStrategy
_FabricBase: Any = fabric_module("strategies").DDPStrategy


class _OnSirtaki:
    """Mixed into a DDP strategy: uses the ranks of `hvd.init()`."""

    def __init__(self, *arguments: Any, scale_lr: bool = False, **options: Any) -> None:
        options.setdefault("process_group_backend", NAME)
        options.setdefault("cluster_environment", SirtakiEnvironment())
        # Avoids copies of all gradients into DDP's buckets and back.
        options.setdefault("gradient_as_bucket_view", True)
        super().__init__(*arguments, **options)
        self._scale_lr = scale_lr

    @property
    def root_device(self) -> torch.device:
        """Return the device of this rank, for any number of `devices`."""
        devices: list[torch.device] = self.parallel_devices  # type: ignore[attr-defined]
        number: int = self.local_rank  # type: ignore[attr-defined]
        if number < len(devices):
            return devices[number]
        if devices[0].type == "cpu":
            return devices[0]
        return torch.device(devices[0].type, number)

    @property
    def distributed_sampler_kwargs(self) -> dict[str, Any]:
        """Return the arguments of a `DistributedSampler`."""
        return {"num_replicas": self.world_size, "rank": self.global_rank}  # type: ignore[attr-defined]

    def _configure_launcher(self) -> None:
        self._launcher = None

    def setup_environment(self) -> None:
        """Create the default group, in which DDP, metrics and batch normalisation then run."""
        init(self._timeout)  # type: ignore[attr-defined]
        super().setup_environment()  # type: ignore[misc]

    def _scaled(self, optimizers: Iterable[torch.optim.Optimizer]) -> None:
        """Multiply learning rates by the number of ranks, if requested."""
        for group in (group for optimizer in optimizers for group in optimizer.param_groups):
            for name in ("lr", "initial_lr"):
                if self._scale_lr and name in group:
                    group[name] *= self.world_size  # type: ignore[attr-defined]


class SirtakiStrategy(_OnSirtaki, _TrainerBase):  # type: ignore[misc]
    """Trains with `Trainer(strategy="sirtaki")`: `DDPStrategy` on our engine.

    Args:
        scale_lr: Whether learning rates, also of schedulers, are multiplied by the number of ranks.
        *arguments: As for Lightning's `DDPStrategy`, such as `find_unused_parameters`.
        **options: The same.
    """

    strategy_name = NAME

    def setup_optimizers(self, trainer: Any) -> None:
        """Create the optimizers and schedulers; see `scale_lr`."""
        super().setup_optimizers(trainer)
        self._scaled(self.optimizers)
        for config in self.lr_scheduler_configs if self._scale_lr else ():
            rates = getattr(config.scheduler, "base_lrs", None)
            if rates is not None:
                config.scheduler.base_lrs = [rate * self.world_size for rate in rates]


class HorovodStrategy(SirtakiStrategy):
    """Trains with `Trainer(strategy="horovod")`: like Lightning 1.x, it scales learning rates.

    Args:
        scale_lr: See `SirtakiStrategy`.
        *arguments: As for Lightning's `DDPStrategy`.
        **options: The same.
    """

    strategy_name = "horovod"

    def __init__(self, *arguments: Any, scale_lr: bool = True, **options: Any) -> None:
        super().__init__(*arguments, scale_lr=scale_lr, **options)


class SirtakiFabricStrategy(_OnSirtaki, _FabricBase):  # type: ignore[misc]
    """Trains with `Fabric(strategy="sirtaki")`: Fabric's `DDPStrategy` on our engine.

    Args:
        scale_lr: Whether learning rates are multiplied by the number of ranks.
        *arguments: As for Fabric's `DDPStrategy`.
        **options: The same.
    """

    def setup_optimizer(self, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        """Return the optimizer; see `scale_lr`."""
        self._scaled([optimizer])
        return optimizer


def register() -> None:
    """Register the strategies `sirtaki` and `horovod` with `Trainer` and `Fabric`."""
    spare_mpi()
    trainers = trainer_module("strategies").StrategyRegistry
    fabrics = fabric_module("strategies").STRATEGY_REGISTRY
    what = "DistributedDataParallel on Sirtaki's engine"
    for name, strategy in ((NAME, SirtakiStrategy), ("horovod", HorovodStrategy)):
        trainers.register(name, strategy, description=what, override=True)
        fabrics.register(
            name,
            SirtakiFabricStrategy,
            description=what,
            override=True,
            scale_lr=name == "horovod",
        )
