"""Worlds that are made of placements: nothing of ours started their processes."""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import pytest

import sirtaki as hvd
from sirtaki import Placement, World, placements

T = TypeVar("T")


def in_threads(given: list[Placement], function: Callable[[], T]) -> list[T]:
    """What a function returns in each rank's thread, which has entered the rank's world."""

    def rank(placement: Placement) -> T:
        with World(placement):
            return function()

    with ThreadPoolExecutor(len(given)) as pool:
        return list(pool.map(rank, given))


def total() -> float:
    """The sum of 1, 2, ... over the ranks."""
    return float(hvd.allreduce(np.array([hvd.rank() + 1.0]), op=hvd.Sum, name="x")[0])


def of_a_process(placement: Placement) -> tuple[int, int, int, float]:
    hvd.init(placement=placement)
    try:
        return hvd.rank(), hvd.size(), hvd.local_size(), total()
    finally:
        hvd.shutdown()


def test_two_worlds_live_in_threads_of_one_process() -> None:
    with placements(2) as one, placements(3) as other, ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda given: in_threads(given, total), (one, other)))
    assert found == [[3.0, 3.0], [6.0, 6.0, 6.0]]


def test_a_world_takes_the_place_of_another() -> None:
    for epoch in range(3):
        with placements(2, epoch=epoch) as given:
            assert in_threads(given, total) == [3.0, 3.0]


def test_the_default_world_is_there_beside_one_that_was_entered() -> None:
    hvd.init()
    with placements(2) as given:
        assert in_threads(given, hvd.size) == [2, 2]
    assert hvd.size() == 1
    hvd.shutdown()


def test_a_world_that_was_shut_down_is_none() -> None:
    with placements(1) as (given,), World(given):
        assert hvd.size() == 1
        hvd.shutdown()
        assert not hvd.is_initialized()
        with pytest.raises(ValueError, match="not been initialized"):
            hvd.size()


def test_sets_belong_to_the_world_in_which_they_are_registered() -> None:
    def first_alone() -> list[int] | None:
        only = hvd.add_process_set([0])
        return only.ranks if only.process_set_id else None

    def rank(placement: Placement) -> list[int] | None:
        with World(placement, dynamic_process_sets=True):
            return first_alone()

    with placements(2) as given, ThreadPoolExecutor(2) as pool:
        assert list(pool.map(rank, given)) == [[0], [0]]


@pytest.mark.job
def test_processes_of_a_pool_form_a_world() -> None:
    spawn = multiprocessing.get_context("spawn")
    with placements(2) as given, spawn.Pool(2) as pool:
        found = pool.map(of_a_process, given, chunksize=1)
    assert found == [(0, 2, 2, 3.0), (1, 2, 2, 3.0)]


@pytest.mark.parametrize("tls", [False, True])
def test_hosts_that_are_told_apart_exchange_over_the_network(tls: bool) -> None:
    def place() -> tuple[int, int, float]:
        return hvd.local_size(), hvd.cross_rank(), total()

    with placements(3, hosts=["a", "b", "b"], tls=tls) as given:
        assert in_threads(given, place) == [(1, 0, 6.0), (2, 1, 6.0), (2, 0, 6.0)]


def test_ranks_that_may_be_anywhere_find_out_who_shares_a_host() -> None:
    with placements(2, anywhere=True) as given:
        assert in_threads(given, lambda: (hvd.local_size(), total())) == [(2, 3.0)] * 2


def test_a_placement_travels_whole_and_does_not_show_its_secret() -> None:
    with placements(2, anywhere=True, epoch=4) as given:
        again = pickle.loads(pickle.dumps(given[1]))
        assert again == given[1]
        assert again.epoch == 4
        assert again.secret is not None
        assert again.secret.hex() not in repr(again)
        assert repr(again.secret) not in repr(again)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"rank": 2}, "rank does not fit size"),
        ({"rank": -1}, "rank does not fit size"),
        ({"local_size": 1, "local_rank": 1, "cross_size": 2}, "local_rank does not fit"),
        ({"local_size": 3, "cross_size": 1}, "local_size does not fit size"),
        ({"epoch": -1}, "epoch is negative"),
        ({"store": "http://x"}, "store must begin with one of unix:, tcp:, tls:"),
        ({"store": "tcp:10.0.0.1:1"}, "needs a secret of 32 bytes"),
        ({"store": "tcp:10.0.0.1:1", "secret": b"short"}, "needs a secret of 32 bytes"),
    ],
)
def test_a_placement_that_cannot_be_is_refused(wrong: dict[str, object], why: str) -> None:
    values: dict[str, object] = {"rank": 0, "size": 2, "store": "unix:@x", **wrong}
    with pytest.raises(ValueError, match=why):
        Placement(**values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong", [{"n": 0}, {"n": 2, "hosts": ["a"]}, {"n": 1, "hosts": ["a"], "anywhere": True}]
)
def test_placements_that_cannot_be_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"placements\("), placements(**wrong):  # type: ignore[arg-type]
        pass


def test_members_and_a_placement_contradict_each_other() -> None:
    with placements(1) as (given,), pytest.raises(ValueError, match="comm or placement"):
        hvd.init([0], placement=given)


def test_a_placement_that_is_used_twice_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_START_TIMEOUT", "3")

    def said(placement: Placement) -> str:
        try:
            World(placement).close()
        except (ValueError, OSError) as error:
            return str(error)
        return ""

    with placements(3) as given, ThreadPoolExecutor(3) as pool:
        found = list(pool.map(said, [given[0], given[1], given[1]]))
    assert all(found)
    assert any("rank 1" in text for text in found), found
