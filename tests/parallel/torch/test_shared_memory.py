"""Tensors that share memory, as tied weights do, are reduced right or refused."""

from __future__ import annotations

import pytest
import torch

import sirtaki.torch as hvd

SIZES = (80, 3000, 20_000)


class Tied(torch.nn.Module):
    """A model with one tensor under two names."""

    def __init__(self, words: int) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(words, 16)
        self.head = torch.nn.Linear(16, words, bias=False)
        self.head.weight = self.embed.weight


def tied(words: int) -> Tied:
    model = Tied(words)
    torch.nn.init.constant_(model.embed.weight, float(hvd.rank()))
    return model


def mean() -> float:
    return (hvd.size() - 1) / 2


@pytest.mark.parametrize("words", SIZES)
def test_the_state_of_a_model_with_tied_weights_is_averaged(words: int) -> None:
    for _ in range(3):
        model = tied(words)
        hvd.grouped_allreduce_(list(model.state_dict().values()), op=hvd.Average)
        assert model.embed.weight.unique().tolist() == [mean()]
        model = tied(words)
        values = model.state_dict().items()
        handles = [hvd.allreduce_async_(each, name=f"tied.{name}") for name, each in values]
        for handle in handles:
            hvd.synchronize(handle)
        assert model.embed.weight.unique().tolist() == [mean()]


@pytest.mark.parametrize("words", SIZES)
def test_the_state_of_a_model_with_tied_weights_is_broadcast(words: int) -> None:
    model = tied(words)
    hvd.broadcast_parameters(model.state_dict(), root_rank=hvd.size() - 1)
    assert model.head.weight.unique().tolist() == [hvd.size() - 1]


def test_a_model_with_tied_weights_is_trained() -> None:
    model = tied(80)
    torch.nn.init.ones_(model.embed.weight)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=1.0), model.named_parameters()
    )
    model.head(model.embed(torch.tensor([hvd.rank()]))).sum().backward()
    optimizer.step()
    weights = hvd.allgather(model.embed.weight.detach()[None])
    assert torch.equal(weights, weights[:1].expand_as(weights))
    assert (weights != 1).any()


def test_a_group_of_parts_that_overlap_gives_each_the_reduction_of_what_it_was() -> None:
    whole = torch.ones(10)
    hvd.grouped_allreduce_([whole[:6], whole[4:]], op=hvd.Sum)
    assert whole.tolist() == [hvd.size()] * 10


def test_elements_that_share_memory_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="share memory, so it cannot be written"):
        hvd.allreduce_(torch.ones(1).expand(3))
    with pytest.raises(ValueError, match="share memory, so it cannot be written"):
        hvd.broadcast_(torch.ones(4).as_strided((3, 2), (1, 1)), 0)
    assert hvd.allreduce(torch.ones(1).expand(3), op=hvd.Sum).tolist() == [hvd.size()] * 3
    columns = torch.ones(4, 2)
    hvd.grouped_allreduce_([columns[:, 0], columns[:, 1]], op=hvd.Sum)
    assert (columns == hvd.size()).all()
