"""Checkpoints of all ranks: whole or not there, and errors that all ranks get."""

from __future__ import annotations

import random
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch

import sirtaki.torch as hvd
from sirtaki.checkpoint import files

checkpoint = hvd.checkpoint


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A folder that all ranks share."""
    shared: Path = hvd.broadcast_object(tmp_path / "checkpoints", name="path")
    return shared


def training() -> dict[str, object]:
    model = torch.nn.Linear(3, 2)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), model.named_parameters()
    )
    sampler = hvd.elastic.ElasticSampler(range(20))
    return {"model": model, "optimizer": optimizer, "sampler": sampler, "epoch": 0}


def step(state: dict[str, object]) -> None:
    state["optimizer"].zero_grad()
    state["model"](torch.ones(1, 3)).square().sum().backward()
    state["optimizer"].step()


def weights(state: dict[str, object]) -> list[list[float]]:
    return [p.tolist() for p in state["model"].parameters()]


@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize("async_", [False, True])
def test_training_goes_on_as_if_it_had_not_stopped(path: Path, sharded: bool, async_: bool) -> None:
    state = training()
    step(state)
    state["sampler"].record_batch(0, 2)
    state["epoch"] = 4
    checkpoint.save(path, state, step=7, async_=async_, sharded=sharded)
    step(state)  # the copy is of before
    step(state)
    checkpoint.wait()
    torch.manual_seed(1 + hvd.rank())
    fresh = training()
    loaded = checkpoint.load(path, fresh)
    assert loaded is not None
    assert (loaded.step, loaded.state["epoch"]) == (7, 4)
    assert loaded.state["model"] is fresh["model"]
    assert fresh["sampler"].processed_num == min(20, 2 * hvd.size())
    step(fresh)
    step(fresh)
    assert weights(fresh) == weights(state)
    parts = hvd.size() if sharded else 1
    assert len(list(loaded.path.iterdir())) == parts


def test_each_rank_goes_on_with_its_own_random_numbers(path: Path) -> None:
    torch.manual_seed(hvd.rank())
    np.random.seed(hvd.rank())
    random.seed(hvd.rank())
    checkpoint.save(path, {"epoch": 1}, step=0, async_=False)
    drawn = torch.rand(1).item(), np.random.rand(), random.random()
    checkpoint.load(path, {"epoch": 0})
    assert (torch.rand(1).item(), np.random.rand(), random.random()) == drawn
    assert len(set(hvd.allgather_object(drawn))) == hvd.size()


def test_an_elastic_state_is_saved_as_it_is(path: Path) -> None:
    made = training()
    state = hvd.elastic.TorchState(**made)
    step(made)
    state.epoch = 3
    checkpoint.save(path, state, step=1)
    checkpoint.wait()
    fresh = training()
    again = hvd.elastic.TorchState(**fresh)
    checkpoint.load(path, again)
    assert again.epoch == 3
    assert weights(fresh) == weights(made)
    again.restore()  # what was loaded is committed
    assert (again.epoch, weights(fresh)) == (3, weights(made))


def test_the_newest_three_stay(path: Path) -> None:
    for number in range(5):
        checkpoint.save(path, {"epoch": number}, step=number)
    checkpoint.wait()
    assert [files.step_of(each) for each in files.folders(path)] == [4, 3, 2]
    hvd.barrier()


def test_without_a_checkpoint_training_begins(path: Path) -> None:
    assert checkpoint.load(path, {"epoch": 0}) is None
    assert checkpoint.latest(path) is None


def test_an_incomplete_one_is_skipped_with_a_warning(path: Path) -> None:
    checkpoint.save(path, {"epoch": 1}, step=1, async_=False)
    if hvd.rank() == 0:
        broken = path / "step-0000000002-01234567"
        broken.mkdir()
        (broken / "part-00001-of-00002.npz").write_bytes(b"")
    hvd.barrier()
    with pytest.warns(RuntimeWarning, match="step-0000000002-01234567 is incomplete: part 0 of 2"):
        found = checkpoint.latest(path)
    assert found is not None
    assert files.step_of(found) == 1
    hvd.barrier()


@pytest.mark.parametrize("position", [0.2, 0.5])
def test_all_ranks_hear_which_file_is_damaged(path: Path, position: float) -> None:
    state = {"values": torch.arange(1000.0)}
    checkpoint.save(path, state, step=1, async_=False, sharded=True)
    found = checkpoint.latest(path)
    assert found is not None
    hvd.barrier()
    file = files.parts_of(found)[0]
    hvd.barrier()
    if hvd.rank() == 0:
        data = bytearray(file.read_bytes())
        data[int(position * len(data))] ^= 1
        file.write_bytes(data)
    with pytest.raises(checkpoint.CheckpointError, match=rf"{file} is damaged.*move {found} away"):
        checkpoint.load(path, state)


def test_all_ranks_hear_that_a_checkpoint_is_of_another_model(path: Path) -> None:
    checkpoint.save(path, {"model": torch.nn.Linear(3, 2)}, step=1, async_=False)
    with pytest.raises(checkpoint.CheckpointError, match=r"does not fit the state.*size mismatch"):
        checkpoint.load(path, {"model": torch.nn.Linear(3, 3)})
    with pytest.raises(checkpoint.CheckpointError, match="only one of both has extra"):
        checkpoint.load(path, {"model": torch.nn.Linear(3, 2), "extra": 1})


def test_all_ranks_hear_what_one_cannot_pickle_and_the_one_before_stays(path: Path) -> None:
    checkpoint.save(path, {"hook": None}, step=1)
    hook = (lambda: None) if hvd.rank() == hvd.size() - 1 else None
    words = rf"rank {hvd.size() - 1}: state\['hook'\], a function"
    with pytest.raises(checkpoint.CheckpointError, match=words):
        checkpoint.save(path, {"hook": hook}, step=2)
    loaded = checkpoint.load(path, {"hook": None})
    assert loaded is not None
    assert loaded.step == 1


def test_all_ranks_hear_that_the_disk_is_full(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    checkpoint.save(path, {"epoch": 1}, step=1, async_=False)
    if hvd.rank() == 0:
        monkeypatch.setattr(np, "savez", full)
    checkpoint.save(path, {"epoch": 2}, step=2)
    with pytest.raises(checkpoint.CheckpointError, match=r"rank 0: .*No space left on device"):
        checkpoint.save(path, {"epoch": 3}, step=3)
    warned = pytest.warns(RuntimeWarning, match="incomplete") if hvd.rank() == 0 else nullcontext()
    with warned:
        loaded = checkpoint.load(path, {"epoch": 0})
    assert loaded is not None
    assert loaded.step == 1


class Custom:
    """Anything that can be pickled."""


def test_nothing_is_unpickled_from_a_file_that_is_not_trusted(path: Path) -> None:
    checkpoint.save(path, {"thing": Custom()}, step=1, async_=False)
    with pytest.raises(checkpoint.CheckpointError, match=r"state\['thing'\] is a pickled .*Custom"):
        checkpoint.load(path, {"thing": None})
    loaded = checkpoint.load(path, {"thing": None}, trusted=True)
    assert loaded is not None
    assert isinstance(loaded.state["thing"], Custom)


def test_another_number_of_ranks_may_load_what_ranks_have_shared(path: Path) -> None:
    """Parts as of four ranks, whatever the size here."""
    tensors = [torch.full((5,), float(i)) for i in range(6)]
    if hvd.rank() == 0:
        saved = checkpoint._checkpoints
        random_state = {"random": {"list": []}, "step": 9}
        for part in range(4):
            meta, arrays = saved._snapshot({"t": tensors}, [], part, 4)
            folder = files.folder_of(path, 9, "0123abcd")
            files.write_part(folder, part, 4, meta | random_state, arrays)
    hvd.barrier()
    loaded = checkpoint.load(path, {"t": None})
    assert loaded is not None
    assert [t.tolist() for t in loaded.state["t"]] == [t.tolist() for t in tensors]


@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, torch.bool, torch.complex64, torch.int8, torch.float64]
)
def test_tensors_of_all_types_come_back(path: Path, dtype: torch.dtype) -> None:
    values = [torch.ones(2, 3).to(dtype).T, torch.ones(()).to(dtype), torch.ones(0, 2).to(dtype)]
    checkpoint.save(path, {"values": values}, step=1, async_=False)
    loaded = checkpoint.load(path)
    assert loaded is not None
    for found, expected in zip(loaded.state["values"], values, strict=True):
        assert found.dtype == dtype
        assert torch.equal(found, expected)


def test_the_only_whole_one_stays_until_the_next_is_whole(tmp_path: Path) -> None:
    old, new = (files.folder_of(tmp_path, step, str(step) * 8) for step in (1, 2))
    for part in (0, 1):
        files.write_part(old, part, 2, {}, {})
    files.write_part(new, 0, 2, {}, {})
    files.prune(tmp_path, 1, new)
    with pytest.warns(RuntimeWarning, match="part 1 of 2 is missing"):
        assert files.latest(tmp_path) == old
    files.write_part(new, 1, 2, {}, {})
    files.prune(tmp_path, 1, new)
    assert files.folders(tmp_path) == [new]


def test_a_folder_that_vanishes_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, gone = (files.folder_of(tmp_path, step, str(step) * 8) for step in (1, 2))
    files.write_part(old, 0, 1, {}, {})
    monkeypatch.setattr(files, "folders", lambda root: [gone, old])
    with pytest.warns(RuntimeWarning, match="has just removed it"):
        assert files.latest(tmp_path) == old
