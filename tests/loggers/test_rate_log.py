"""How fast ranks are, as TensorBoard, MLflow and W&B read again what `RateLog` has written."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sirtaki as hvd
from sirtaki.core.rate_log import RateLog
from tests import needs

pytestmark = pytest.mark.nightly

RATES = ("step_seconds", "bytes_per_second", "exposed", "communicating", "waiting")
NAMES = {f"sirtaki/rank0/{name}" for name in RATES}
# Of the files of W&B: what they begin with, and how large a block of records is.
HEADER_BYTES = 7
BLOCK_BYTES = 32 << 10
PIECE = struct.Struct("<IHB")
FULL, FIRST, LAST = 1, 2, 4


@pytest.fixture(autouse=True)
def _world() -> Iterator[None]:
    hvd.init()
    yield
    hvd.shutdown()


def train(log: Any, steps: int = 6) -> None:
    rates = RateLog(log, every=3)
    for _ in range(steps):
        hvd.allreduce(np.ones(8, np.float32), name="grad")
        rates.step()


def test_tensorboard_reads_scalars_at_each_so_many_steps(tmp_path: Path) -> None:
    needs.package("tensorboard")
    from tensorboard.backend.event_processing import event_accumulator
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path)) as writer:
        train(writer)
    events = event_accumulator.EventAccumulator(str(tmp_path)).Reload()
    assert set(events.Tags()["scalars"]) == NAMES
    for name in NAMES:
        assert [one.step for one in events.Scalars(name)] == [3, 6]


def test_mlflow_has_them_with_the_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow = needs.package("mlflow")
    mlflow.set_tracking_uri(tmp_path.as_uri())
    mlflow.set_experiment("rates")
    with mlflow.start_run() as run:
        train(mlflow)
    client = mlflow.MlflowClient()
    assert set(client.get_run(run.info.run_id).data.metrics) == NAMES
    for name in NAMES:
        history = client.get_metric_history(run.info.run_id, name)
        assert [one.step for one in history] == [3, 6]


def test_wandb_has_them_beside_what_the_user_logs_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    wandb = needs.package("wandb")
    with wandb.init(project="rates", dir=str(tmp_path)) as run:
        train(run, steps=3)
        run.log({"loss": 0.5})
    [file] = tmp_path.rglob("*.wandb")
    rows = [row for row in history(file) if "loss" in row]
    assert [row["loss"] for row in rows] == [0.5]
    assert set(rows[0]) >= NAMES


def history(file: Path) -> Iterator[dict[str, Any]]:
    """What was logged together, of each row."""
    from wandb.proto import wandb_internal_pb2

    for data in records(file.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.HasField("history"):
            items = record.history.item
            yield {"/".join(one.nested_key) or one.key: json.loads(one.value_json) for one in items}


def records(data: bytes) -> Iterator[bytes]:
    """The records of a file, which are cut at the ends of blocks."""
    at, whole = HEADER_BYTES, b""
    while at + PIECE.size <= len(data):
        if BLOCK_BYTES - at % BLOCK_BYTES < PIECE.size:
            at += BLOCK_BYTES - at % BLOCK_BYTES
            continue
        _, size, kind = PIECE.unpack_from(data, at)
        piece = data[at + PIECE.size : at + PIECE.size + size]
        at += PIECE.size + size
        whole = piece if kind in (FULL, FIRST) else whole + piece
        if kind in (FULL, LAST):
            yield whole
