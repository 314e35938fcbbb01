"""Every collective among some of the ranks."""

from __future__ import annotations

import copy
import pickle
import time

import pytest
import torch

import sirtaki.torch as hvd


def members(process_set: hvd.ProcessSet) -> list[int]:
    assert process_set.ranks is not None
    return process_set.ranks


def test_a_set_knows_its_members(pair: hvd.ProcessSet) -> None:
    assert members(pair) == sorted({0, hvd.size() - 1})
    assert pair.size() == len(members(pair))
    assert pair.included() == (hvd.rank() in members(pair))
    if pair.included():
        assert pair.rank() == members(pair).index(hvd.rank())


def test_sets_are_seen_with_their_ranks(pair: hvd.ProcessSet) -> None:
    known = hvd.mpi_ops._basics._get_process_set_ids_and_ranks()
    assert known[0] == list(range(hvd.size()))
    assert known[pair.process_set_id] == members(pair)


def test_allreduce(pair: hvd.ProcessSet) -> None:
    if pair.included():
        values = torch.full((3,), float(hvd.rank()))
        assert (
            hvd.allreduce(values, op=hvd.Sum, process_set=pair).tolist() == [sum(members(pair))] * 3
        )
        average = sum(members(pair)) / len(members(pair))
        assert hvd.allreduce(values, process_set=pair).tolist() == [average] * 3
        hvd.grouped_allreduce_([values], op=hvd.Max, process_set=pair)
        assert values.tolist() == [hvd.size() - 1] * 3


def test_allgather(pair: hvd.ProcessSet) -> None:
    if pair.included():
        values = torch.tensor([hvd.rank()])
        assert hvd.allgather(values, process_set=pair).tolist() == members(pair)


def test_broadcast_takes_the_roots_rank_in_the_world(pair: hvd.ProcessSet) -> None:
    if pair.included():
        root = members(pair)[-1]
        values = torch.tensor([hvd.rank()])
        assert hvd.broadcast(values, root, process_set=pair).tolist() == [root]


def test_alltoall(pair: hvd.ProcessSet) -> None:
    if pair.included():
        values = torch.full((len(members(pair)),), hvd.rank())
        assert hvd.alltoall(values, process_set=pair).tolist() == members(pair)


def test_reducescatter(pair: hvd.ProcessSet) -> None:
    if pair.included():
        values = torch.arange(4) + hvd.rank()
        total = torch.arange(4) * len(members(pair)) + sum(members(pair))
        expected = torch.tensor_split(total, len(members(pair)))[pair.rank()]
        assert torch.equal(hvd.reducescatter(values, op=hvd.Sum, process_set=pair), expected)


def test_objects(pair: hvd.ProcessSet) -> None:
    if pair.included():
        root = members(pair)[-1]
        mine = {"rank": hvd.rank()}
        assert hvd.broadcast_object(mine, root, process_set=pair) == {"rank": root}
        everybody = hvd.allgather_object(mine, process_set=pair)
        assert everybody == [{"rank": rank} for rank in members(pair)]


def test_a_barrier_holds_members_until_the_last_has_come(pair: hvd.ProcessSet) -> None:
    if pair.included():
        last = pair.rank() == pair.size() - 1
        if last:
            time.sleep(0.2)
        came = time.monotonic()  # the same clock for all processes of a host
        hvd.barrier(process_set=pair)
        left = time.monotonic()
        times = hvd.allgather_object((came, left), process_set=pair)
        assert max(came for came, _ in times) <= min(left for _, left in times)


def test_gradients_stay_within_the_set(pair: hvd.ProcessSet) -> None:
    if pair.included():
        mean = sum(rank + 1.0 for rank in members(pair)) / len(members(pair))
        x = torch.ones(2, requires_grad=True)
        weight = hvd.rank() + 1.0
        (hvd.allreduce(x, process_set=pair) * weight).sum().backward()
        assert x.grad is not None
        assert x.grad.tolist() == [mean] * 2
        x.grad = None
        (hvd.allgather(x, process_set=pair) * weight).sum().backward()
        assert x.grad is not None
        assert x.grad.tolist() == [mean] * 2


def test_operations_of_different_sets_may_overlap(pair: hvd.ProcessSet) -> None:
    everybody = hvd.allreduce_async(torch.ones(3), op=hvd.Sum, name="same")
    if pair.included() and pair is not hvd.global_process_set:
        some = hvd.allreduce_async(torch.ones(3), op=hvd.Sum, name="same", process_set=pair)
        assert hvd.synchronize(some).tolist() == [len(members(pair))] * 3
    assert hvd.synchronize(everybody).tolist() == [hvd.size()] * 3


@pytest.mark.skipif("hvd.size() < 3", reason="everybody is in the set")
def test_a_rank_outside_the_set_is_refused(pair: hvd.ProcessSet) -> None:
    if not pair.included():
        with pytest.raises(ValueError, match="rank"):
            hvd.allreduce(torch.ones(2), process_set=pair)
        with pytest.raises(ValueError, match="part"):
            pair.rank()


@pytest.mark.skipif("hvd.size() < 3", reason="everybody is in the set")
def test_a_root_outside_the_set_is_refused(pair: hvd.ProcessSet) -> None:
    if pair.included():
        with pytest.raises(ValueError, match="root"):
            hvd.broadcast(torch.ones(2), root_rank=1, process_set=pair)


def test_a_set_that_was_never_added_is_refused() -> None:
    with pytest.raises(ValueError, match="not registered"):
        hvd.allreduce(torch.ones(2), process_set=hvd.ProcessSet([0]))


@pytest.mark.skipif("hvd.size() < 2", reason="the set would be the world")
def test_a_set_that_was_removed_is_refused() -> None:
    removed = hvd.add_process_set([1])
    assert hvd.remove_process_set(removed)
    with pytest.raises(ValueError, match="not registered"):
        hvd.allreduce(torch.ones(2), process_set=removed)


class TestCopies:
    """A set has one registration, so it is not copied: models that hold it go on exchanging."""

    def same(self, process_set: hvd.ProcessSet) -> list[hvd.ProcessSet]:
        return [
            copy.copy(process_set),
            copy.deepcopy({"a": process_set})["a"],
            pickle.loads(pickle.dumps(process_set)),
        ]

    def test_of_the_global_set_are_the_global_set(self) -> None:
        assert all(made is hvd.global_process_set for made in self.same(hvd.global_process_set))

    @pytest.mark.skipif("hvd.size() < 2", reason="the set would be the world")
    def test_of_a_registered_set_are_that_set(self) -> None:
        added = hvd.add_process_set([1])
        assert all(made is added for made in self.same(added))
        hvd.remove_process_set(added)

    def test_of_a_set_that_is_not_registered_can_be_registered(self) -> None:
        made = pickle.loads(pickle.dumps(hvd.ProcessSet([0])))
        assert made.ranks == [0]
        assert made.process_set_id is None


@pytest.mark.skipif("hvd.size() < 3", reason="needs sets of two ranks that differ")
def test_a_set_that_gets_the_number_of_a_removed_one_can_have_unnamed_optimizers() -> None:
    for ranks in ([0, 1], [1, 2]):
        chosen = hvd.add_process_set(ranks)
        weight = torch.nn.Parameter(torch.zeros(2))
        if hvd.rank() in ranks:
            inner = torch.optim.SGD([weight], lr=1.0)
            optimizer = hvd.DistributedOptimizer(inner, process_set=chosen)
            (weight.sum() * hvd.rank()).backward()
            optimizer.step()
            assert weight.tolist() == [-sum(ranks) / 2] * 2
        hvd.remove_process_set(chosen)
