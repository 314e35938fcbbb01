"""Checkpoints of PyTorch's objects, saved and loaded by all ranks."""

from __future__ import annotations

import random
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sirtaki.torch as hvd


@pytest.fixture
def folder() -> Iterator[str]:
    """The same folder on all ranks."""
    made = tempfile.mkdtemp() if hvd.rank() == 0 else None
    found = hvd.broadcast_object(made, 0)
    yield found
    hvd.barrier()
    if hvd.rank() == 0:
        shutil.rmtree(found)


def trained() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """A model and its optimizer after a step, the same on all ranks."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    optimizer = hvd.DistributedOptimizer(torch.optim.Adam(model.parameters(), lr=0.5))
    model(torch.arange(8.0).reshape(2, 4)).square().sum().backward()
    optimizer.step()
    return model, optimizer


def fresh() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    return model, hvd.DistributedOptimizer(torch.optim.Adam(model.parameters(), lr=9))


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return all(map(same, one, other))
    return bool(one == other)


@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize("async_", [False, True])
def test_objects_are_brought_to_what_was_saved(folder: str, sharded: bool, async_: bool) -> None:
    model, optimizer = trained()
    state = {"model": model, "optimizer": optimizer, "epoch": 3, "half": torch.ones(2).bfloat16()}
    hvd.checkpoint.save(folder, state, step=7, async_=async_, sharded=sharded)
    with torch.no_grad():  # what was saved is a copy
        before = {name: value.clone() for name, value in model.state_dict().items()}
        model[0].weight.zero_()
    hvd.checkpoint.wait()
    found = hvd.checkpoint.latest(folder)
    assert found is not None
    assert found.step == 7
    other_model, other = fresh()
    state = {"model": other_model, "optimizer": other, "epoch": 0, "half": None}
    loaded = hvd.checkpoint.load(found, state)
    assert same(before, dict(other_model.state_dict()))
    assert same(optimizer.state_dict(), other.state_dict())
    assert (loaded["epoch"], loaded["model"]) == (3, other_model)
    assert same(loaded["half"], torch.ones(2).bfloat16())


def test_without_objects_a_checkpoint_is_what_stands_for_them(folder: str) -> None:
    model, _ = trained()
    hvd.checkpoint.save(folder, {"model": model, "numbers": (1, [2.5, None, "x"])}, 1, async_=False)
    loaded = hvd.checkpoint.load(folder)
    assert same(loaded["model"]["state_dict"], dict(model.state_dict()))
    assert loaded["numbers"] == (1, [2.5, None, "x"])


def test_generators_of_each_rank_go_on_where_they_were(folder: str) -> None:
    torch.manual_seed(hvd.rank())
    np.random.seed(hvd.rank())
    random.seed(hvd.rank())
    hvd.checkpoint.save(folder, {}, step=1, async_=False)

    def drawn() -> list[float]:
        return [random.random(), float(np.random.rand()), torch.rand(1).item()]

    first = drawn()
    assert drawn() != first
    hvd.checkpoint.load(folder)
    assert drawn() == first


def test_an_elastic_state_is_loaded_and_committed(folder: str) -> None:
    model, optimizer = trained()
    sampler = hvd.elastic.ElasticSampler(list(range(12)), shuffle=False)
    sampler.record_indices([0, 1])
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, sampler=sampler, batch=5)
    hvd.checkpoint.save(folder, state, step=1, async_=False)
    other_model, other = fresh()
    again = hvd.elastic.ElasticSampler(list(range(12)), shuffle=False)
    loaded = hvd.elastic.TorchState(model=other_model, optimizer=other, sampler=again, batch=0)
    hvd.checkpoint.load(folder, loaded)
    loaded.restore()
    assert loaded.batch == 5
    assert again.state_dict() == sampler.state_dict()
    assert same(dict(model.state_dict()), dict(other_model.state_dict()))


def test_a_value_that_cannot_be_saved_is_an_error_on_all_ranks(folder: str) -> None:
    last = hvd.size() - 1
    value = object() if hvd.rank() == last else 1
    with pytest.raises(hvd.checkpoint.CheckpointError, match=f"rank {last}: .*state.value"):
        hvd.checkpoint.save(folder, {"value": value}, step=1)
    hvd.checkpoint.save(folder, {"value": 1}, step=2, async_=False)
    assert sorted(path.name for path in Path(folder).iterdir()) == ["step-000000000002"]


def test_a_folder_that_cannot_be_written_is_an_error_on_all_ranks() -> None:
    with pytest.raises(hvd.checkpoint.CheckpointError, match="rank 0: "):
        hvd.checkpoint.save("/proc/no", {}, step=1)


def test_an_error_in_writing_is_raised_by_the_next_call(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sirtaki.checkpoint import folder as folders

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(folders, "write_arrays", full)
        hvd.checkpoint.save(folder, {}, step=1)
        with pytest.raises(hvd.checkpoint.CheckpointError, match=r"rank 0: .*No space left"):
            hvd.checkpoint.wait()
        hvd.checkpoint.save(folder, {}, step=2)
    with pytest.raises(hvd.checkpoint.CheckpointError, match=r"last checkpoint .*No space left"):
        hvd.checkpoint.save(folder, {}, step=3)
    hvd.checkpoint.save(folder, {}, step=4, async_=False)


def test_a_damaged_checkpoint_is_an_error_on_all_ranks(folder: str) -> None:
    hvd.checkpoint.save(folder, {"tensor": torch.ones(4)}, step=1, async_=False)
    found = hvd.checkpoint.latest(folder)
    assert found is not None
    hvd.barrier()
    if hvd.rank() == 0:
        path = Path(found.path, "arrays-0.bin")
        path.write_bytes(bytes(len(path.read_bytes())))
    with pytest.raises(hvd.checkpoint.CheckpointError, match="damaged"):
        hvd.checkpoint.load(found)


def test_a_checkpoint_of_other_values_says_which(folder: str) -> None:
    hvd.checkpoint.save(folder, {"model": 1}, step=1, async_=False)
    with pytest.raises(hvd.checkpoint.CheckpointError, match=r"\['model'\].*\['net'\]"):
        hvd.checkpoint.load(folder, {"net": 1})
    hvd.checkpoint.save(folder, {"model": trained()[0]}, step=2, async_=False)
    with pytest.raises(hvd.checkpoint.CheckpointError, match="does not fit the state"):
        hvd.checkpoint.load(folder, {"model": torch.nn.Linear(2, 2)})


def test_a_folder_without_checkpoints_has_no_latest(folder: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert hvd.checkpoint.latest(folder) is None
    with pytest.raises(hvd.checkpoint.CheckpointError, match="there is no checkpoint in"):
        hvd.checkpoint.load(folder)


def test_at_least_one_checkpoint_is_kept(folder: str) -> None:
    with pytest.raises(ValueError, match="keep=0"):
        hvd.checkpoint.save(folder, {}, step=1, keep=0)
