"""How fast ranks are, in the logs of TensorBoard, W&B and MLflow: their stand-ins note the calls.

None of the three is installed here; the stand-ins have the methods that their documentation has.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import sirtaki as hvd
from sirtaki.core.rate_log import RateLog

NAMES = {
    f"sirtaki/rank0/{name}"
    for name in ("step_seconds", "bytes_per_second", "exposed", "communicating", "waiting")
}


@pytest.fixture(autouse=True)
def _world() -> Iterator[None]:
    hvd.init()
    yield
    hvd.shutdown()


class TensorBoardStandIn:
    """Has what `SummaryWriter` has."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, float, int]] = []

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        self.calls.append((tag, scalar_value, global_step))


class MlflowStandIn:
    """Has what the module `mlflow` has."""

    def __init__(self) -> None:
        self.calls: list[tuple[dict[str, float], int]] = []

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        self.calls.append((metrics, step))


class WandbStandIn:
    """Has what the module `wandb` has."""

    def __init__(self) -> None:
        self.calls: list[tuple[dict[str, float], bool]] = []

    def log(self, data: dict[str, float], commit: bool) -> None:
        self.calls.append((data, commit))


def train(log: Any, steps: int = 6) -> None:
    rates = RateLog(log, every=3)
    for _ in range(steps):
        hvd.allreduce(np.ones(8, np.float32), name="grad")
        time.sleep(0.01)  # longer than a tick of the clock that is used
        rates.step()


def test_a_writer_of_tensorboard_gets_scalars_at_each_so_many_steps() -> None:
    log = TensorBoardStandIn()
    train(log)
    assert {name for name, _, step in log.calls if step == 3} == NAMES
    assert {name for name, _, step in log.calls if step == 6} == NAMES
    assert len(log.calls) == 10
    [seconds] = {value for name, value, step in log.calls if step == 6 and "step" in name}
    assert 0 < seconds < 60


def test_mlflow_gets_them_with_the_step() -> None:
    log = MlflowStandIn()
    train(log)
    assert [(set(values), step) for values, step in log.calls] == [(NAMES, 3), (NAMES, 6)]


def test_wandb_gets_them_beside_what_the_user_logs_next() -> None:
    log = WandbStandIn()
    train(log)
    assert [(set(values), commit) for values, commit in log.calls] == [(NAMES, False)] * 2


def test_before_two_operations_have_ended_there_is_nothing_to_log() -> None:
    log = WandbStandIn()
    RateLog(log, every=1).step()
    assert log.calls == []


def test_without_a_log_a_rank_only_counts() -> None:
    train(None)


def test_what_cannot_log_is_refused() -> None:
    with pytest.raises(TypeError, match=r"object has none of add_scalar \(TensorBoard\)"):
        RateLog(object())
    with pytest.raises(ValueError, match="every=0 must be at least 1"):
        RateLog(None, every=0)
