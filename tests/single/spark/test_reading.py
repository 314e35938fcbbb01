"""Which rows each rank of an estimator reads, and in which batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sirtaki.data.row_groups import Group, Span, total
from sirtaki.spark.common.parquet import Reader, spans_of, train_steps, validation_steps

counts = st.lists(st.integers(1, 40), min_size=1, max_size=12)
sizes = st.integers(1, 7)


class Numbered(Reader):
    """Reads the numbers of rows in place of a file."""

    def _rows(self, span: Span) -> dict[str, Any]:
        return {"row": span.group.number * 1000 + np.arange(span.start, span.stop)}


def reader(rows: list[int], rank: int, size: int, batch: int, seed: int | None) -> Numbered:
    groups = [Group("file", number, count) for number, count in enumerate(rows)]
    none: Any = None
    return Numbered(none, spans_of(groups, rank, size), ["row"], batch, seed)


def everything(rows: list[int]) -> list[int]:
    return [1000 * group + row for group, count in enumerate(rows) for row in range(count)]


@given(counts, sizes)
def test_each_row_belongs_to_one_rank_and_ranks_have_equally_many(
    rows: list[int], size: int
) -> None:
    parts = [reader(rows, rank, size, 1, None) for rank in range(size)]
    found = [int(batch["row"][0]) for part in parts for batch in part.once()]
    assert found == everything(rows)
    assert max(part.rows for part in parts) - min(part.rows for part in parts) <= 1


@given(counts, sizes)
def test_a_rank_shares_at_most_its_first_and_last_row_group(rows: list[int], size: int) -> None:
    groups = [Group("file", number, count) for number, count in enumerate(rows)]
    for rank in range(size):
        inner = spans_of(groups, rank, size)[1:-1]
        assert all(span.rows == span.group.rows for span in inner)


@given(counts, st.integers(1, 9), st.integers(0, 3), st.integers(0, 5))
def test_an_epoch_has_every_row_once_whatever_its_order(
    rows: list[int], batch: int, seed: int, epoch: int
) -> None:
    batches = [each["row"] for each in reader(rows, 0, 1, batch, seed).once(epoch)]
    assert sorted(np.concatenate(batches).tolist()) == everything(rows)
    assert all(len(each) == batch for each in batches[:-1])


def test_epochs_differ_in_order_and_a_seed_repeats_it() -> None:
    def order(epoch: int) -> list[int]:
        return np.concatenate(
            [each["row"] for each in reader([50, 50], 0, 1, 10, seed=3).once(epoch)]
        ).tolist()  # type: ignore[no-any-return]

    assert order(0) == order(0)
    assert order(0) != order(1)


@given(counts, st.integers(1, 9), st.integers(1, 30))
def test_steps_are_full_batches_and_go_round(rows: list[int], batch: int, steps: int) -> None:
    batches = [each["row"] for each in reader(rows, 0, 1, batch, None).steps(0, steps)]
    there = everything(rows)
    wanted = [there[number % len(there)] for number in range(steps * batch)]
    assert np.concatenate(batches).tolist() == wanted
    assert [len(each) for each in batches] == [batch] * steps


def test_a_rank_without_rows_says_so() -> None:
    with pytest.raises(ValueError, match="no rows"):
        list(reader([1], 0, 2, 2, None).steps(0, 1))


@given(counts, st.integers(1, 9), sizes)
def test_all_ranks_make_equally_many_steps_and_read_no_more_than_there_is(
    rows: list[int], batch: int, size: int
) -> None:
    there = total([Group("file", 0, count) for count in rows])
    steps = train_steps(there, batch, size)
    assert steps >= 1
    assert steps * batch * size <= max(there, batch * size)
    assert train_steps(there, batch, size, given=5) == 5


@pytest.mark.parametrize(
    ("rows", "limit", "steps"), [(0, None, 0), (9, None, 3), (8, None, 2), (9, 2, 2), (4, 9, 1)]
)
def test_validation_reads_all_rows_or_as_many_batches_as_are_asked_for(
    rows: int, limit: int | None, steps: int
) -> None:
    assert validation_steps(rows, 4, limit) == steps
