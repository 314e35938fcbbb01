"""Ranks share out real files and datasets of pyarrow, Hugging Face and WebDataset."""

from __future__ import annotations

import io
import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.utils.data import DataLoader

from sirtaki.core.world import state
from sirtaki.data import ParquetShard, equal_steps, shard_huggingface, split_by_rank
from sirtaki.torch.data import IterableShard
from tests import needs

pytestmark = pytest.mark.nightly
COUNT = 103


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Three files with row groups of different lengths, one file without rows."""
    pyarrow, parquet = needs.package("pyarrow"), needs.package("pyarrow.parquet")
    path = tmp_path_factory.mktemp("rows")
    for name, numbers in (
        ("a", range(50)),
        ("b", range(0)),
        ("c", range(50, 57)),
        ("d", range(57, COUNT)),
    ):
        table = pyarrow.table(
            {
                "id": pyarrow.array(numbers, pyarrow.int64()),
                "vector": pyarrow.array(
                    [[n, n + 0.5] for n in numbers], pyarrow.list_(pyarrow.float32())
                ),
                "name": pyarrow.array([str(n) for n in numbers], pyarrow.string()),
                "ragged": pyarrow.array(
                    [[0] * (n % 3) for n in numbers], pyarrow.list_(pyarrow.int8())
                ),
            }
        )
        parquet.write_table(table, path / f"{name}.parquet", row_group_size=13)
    return str(path)


def shards(folder: str, size: int, **kwargs: Any) -> list[ParquetShard]:
    return [ParquetShard(folder, 8, place=(rank, size), **kwargs) for rank in range(size)]


def ids(batches: Any) -> list[int]:
    return [int(number) for batch in batches for number in batch["id"]]


@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize("even", ["drop", "pad", "join"])
def test_rows_are_used_once_in_as_many_batches(folder: str, size: int, even: str) -> None:
    of_ranks = [list(shard) for shard in shards(folder, size, even=even)]
    used = Counter(number for each in of_ranks for number in ids(each))
    lengths = {len(each) for each in of_ranks}
    assert lengths == {len(shard) for shard in shards(folder, size, even=even)}
    assert all(len(batch["id"]) == 8 for each in of_ranks for batch in each[:-1])
    if even != "join":
        assert len(lengths) == 1
    if even == "drop":
        assert (len(used), set(used.values())) == (COUNT // size * size, {1})
    else:
        assert set(used) == set(range(COUNT))
        assert sum(used.values()) == (COUNT if even == "join" else -(-COUNT // size) * size)


def test_columns_become_arrays_that_belong_to_each_other(folder: str) -> None:
    batch = next(iter(ParquetShard(folder, 5)))
    assert batch["vector"].shape == (5, 2)
    assert batch["vector"].dtype == np.float32
    np.testing.assert_array_equal(batch["vector"][:, 1], batch["id"] + 0.5)
    assert batch["name"].tolist() == [str(number) for number in batch["id"]]
    assert [len(each) for each in batch["ragged"]] == (batch["id"] % 3).tolist()
    batch["id"] += 1  # may be written to
    assert set(next(iter(ParquetShard(folder, 5, columns=["id"])))) == {"id"}


def test_epochs_come_in_orders_of_their_own(folder: str) -> None:
    shard = ParquetShard(folder, 8)
    first, again = ids(shard), ids(shard)
    shard.set_epoch(1)
    assert first == again != ids(shard)
    assert ids(ParquetShard(folder, 8, shuffle=False)) == list(range(COUNT))


def test_workers_of_a_loader_share_the_rows_of_a_rank(folder: str) -> None:
    of_ranks = []
    for shard in shards(folder, 2):
        loader = DataLoader(IterableShard(shard), batch_size=None, num_workers=2)
        of_ranks.append(list(loader))
    used = [number for each in of_ranks for number in ids(each)]
    assert len(used) == len(set(used)) == COUNT // 4 * 4
    assert [len(each) for each in of_ranks] == [8, 8]


def test_another_world_goes_on_with_the_rows_that_are_left(folder: str) -> None:
    before, used = shards(folder, 3), []
    for shard in before:
        batches = iter(shard)
        used += ids([next(batches), next(batches)])
        for number in (7, 8):  # whatever the program counts
            shard.record_batch(number)
    position = before[0].state_dict()
    assert position == before[2].state_dict()
    rest = []
    for shard in shards(folder, 2, even="join"):
        shard.load_state_dict(position)
        rest += ids(shard)
    assert sorted(used + rest) == list(range(COUNT))


def test_no_rows_are_refused(folder: str) -> None:
    with pytest.raises(ValueError, match="no rows in"):
        ParquetShard(f"{folder}/b.parquet", 8)


@pytest.mark.parametrize("size", [2, 3])
def test_datasets_of_hugging_face_are_shared(size: int) -> None:
    datasets = needs.package("datasets")
    table = datasets.Dataset.from_dict({"id": list(range(COUNT))})
    parts = [shard_huggingface(table, "pad", (rank, size))["id"] for rank in range(size)]
    assert {len(part) for part in parts} == {-(-COUNT // size)}
    assert {number for part in parts for number in part} == set(range(COUNT))
    stream = table.to_iterable_dataset(num_shards=6)
    rows: list[int] = []
    for rank in range(size):
        share = shard_huggingface(stream, "join", (rank, size))
        loader = DataLoader(share, batch_size=None, num_workers=2)
        rows += [int(row["id"]) for row in loader]
    assert sorted(rows) == list(range(COUNT))


def shards_of_tar(folder: Path, count: int) -> Iterator[str]:
    for shard in range(count):
        path = folder / f"{shard}.tar"
        with tarfile.open(path, "w") as tar:
            for number in range(3):
                info = tarfile.TarInfo(f"{shard}-{number}.txt")
                text = f"{shard} {number}".encode()
                info.size = len(text)
                tar.addfile(info, io.BytesIO(text))
        yield str(path)


def test_shards_of_webdataset_go_to_ranks_and_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    webdataset = needs.package("webdataset")
    urls = list(shards_of_tar(tmp_path, 5))
    monkeypatch.setattr(state, "is_initialized", lambda: True)
    monkeypatch.setattr(state, "size", lambda: 2)
    texts = []
    for rank in range(2):
        monkeypatch.setattr(state, "rank", lambda rank=rank: rank)
        dataset = webdataset.WebDataset(urls, nodesplitter=split_by_rank, shardshuffle=False)
        loader = DataLoader(dataset.decode(), batch_size=None, num_workers=2)
        texts.append([sample["txt"] for sample in loader])
    assert [len(each) for each in texts] == [9, 6]
    assert len({text for each in texts for text in each}) == 15


def test_steps_of_one_process_are_all(folder: str) -> None:
    assert ids(equal_steps(ParquetShard(folder, 8))) == ids(ParquetShard(folder, 8))
