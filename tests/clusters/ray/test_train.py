"""Ray Train with our backend."""

from __future__ import annotations

from typing import Any

import pytest

from tests import needs

ray = needs.package("ray")
pytestmark = [pytest.mark.nightly, pytest.mark.usefixtures("cluster")]


def trained(trainer: Any) -> Any:
    """Fit, and return what rank 0 returns."""
    return trainer.fit().return_value


def scaling() -> Any:
    from ray.train import ScalingConfig

    return ScalingConfig(num_workers=2)


def loop(fails: bool = False) -> tuple[str, float, float]:
    import torch
    import torch.distributed as dist

    import horovod.torch as hvd

    hvd.init()
    if fails and hvd.rank() == 1:
        raise ValueError("planted")
    theirs = torch.ones(1)
    dist.all_reduce(theirs)
    ours = hvd.allreduce(torch.full((1,), float(hvd.rank())), op=hvd.Sum)
    return dist.get_backend(), theirs.item(), ours.item()


def test_a_trainer_of_pytorch_has_our_group_and_our_world() -> None:
    from ray.train.torch import TorchTrainer

    from sirtaki.ray.train import SirtakiConfig

    trainer = TorchTrainer(loop, torch_config=SirtakiConfig(), scaling_config=scaling())
    assert trained(trainer) == ("sirtaki", 2.0, 1.0)


def test_a_trainer_of_any_framework_has_our_world() -> None:
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    from sirtaki.ray.train import SirtakiConfig

    trainer = DataParallelTrainer(loop, backend_config=SirtakiConfig(), scaling_config=scaling())
    assert trained(trainer)[2] == 1.0


def test_an_error_of_a_rank_reaches_the_caller_with_its_traceback() -> None:
    from ray.train import WorkerGroupError
    from ray.train.torch import TorchTrainer

    from sirtaki.ray.train import SirtakiConfig

    trainer = TorchTrainer(
        lambda: loop(True), torch_config=SirtakiConfig(), scaling_config=scaling()
    )
    with pytest.raises(WorkerGroupError, match=r"(?s)Rank 1 Error.*ValueError: planted"):
        trainer.fit()
