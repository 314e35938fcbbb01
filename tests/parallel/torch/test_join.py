"""Ranks with less data wait in join() and contribute zeros."""

from __future__ import annotations

import pytest
import torch

import sirtaki.torch as hvd


def test_joined_ranks_contribute_zeros_to_sums() -> None:
    """Rank r has r + 1 batches, so in round i only ranks >= i take part."""
    for i in range(hvd.rank() + 1):
        result = hvd.allreduce(torch.ones(3), op=hvd.Sum, name=f"batch.{i}")
        assert result.tolist() == [hvd.size() - i] * 3
    assert hvd.join() == hvd.size() - 1


def test_averages_still_divide_by_the_number_of_all_ranks() -> None:
    for i in range(hvd.rank() + 1):
        result = hvd.allreduce(torch.full((3,), float(hvd.size())), name=f"batch.{i}")
        assert result.tolist() == [hvd.size() - i] * 3
    hvd.join()


def test_all_ranks_may_join_at_once() -> None:
    assert 0 <= hvd.join() < hvd.size()


def test_work_goes_on_after_everybody_has_joined() -> None:
    hvd.join()
    assert hvd.allgather(torch.tensor([hvd.rank()])).tolist() == list(range(hvd.size()))


@pytest.mark.skipif("hvd.size() == 1", reason="nobody is left to try it")
@pytest.mark.parametrize(
    "operation",
    [
        lambda: hvd.allgather(torch.ones(2)),
        lambda: hvd.broadcast(torch.ones(2), root_rank=1),
        lambda: hvd.alltoall(torch.ones(hvd.size())),
        lambda: hvd.reducescatter(torch.ones(2)),
    ],
    ids=["allgather", "broadcast", "alltoall", "reducescatter"],
)
def test_other_operations_fail_while_somebody_has_joined(operation) -> None:
    if hvd.rank() == 0:
        hvd.join()
    else:
        with pytest.raises(hvd.HorovodInternalError, match=r"[Jj]oin"):
            operation()
        hvd.join()


def test_a_rank_that_joined_before_its_first_step_steps_with_the_others_afterwards() -> None:
    model = torch.nn.Linear(2, 1)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters()
    )

    def step() -> None:
        optimizer.zero_grad()
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()

    if hvd.rank() == 0:
        step()
    hvd.join()
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    step()
    everywhere = hvd.allgather(model.weight.detach())
    assert (everywhere == everywhere[0]).all()
