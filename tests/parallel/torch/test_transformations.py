"""Compression.powersgd and topk: against oracles in NumPy that play all ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

import sirtaki.torch as hvd
from sirtaki.torch.gradients.transformations import transformation_of
from tests.compressed import approximations, given, sums_of_largest

Array = npt.NDArray[Any]
RANK = 3
DENSITY = 0.02
RESIDUALS = "compression_residuals"
SHAPES = ((40, 9, 5), (30,), (9_000,), (70, 80))
several = pytest.mark.skipif("hvd.size() == 1", reason="needs several ranks")
powersgd = hvd.Compression.powersgd(RANK)
topk = hvd.Compression.topk(DENSITY)
each = pytest.mark.parametrize("compression", [powersgd, topk], ids=["powersgd", "topk"])


class Training:
    """An optimizer of some weights of 0, which are given any gradients."""

    def __init__(
        self,
        compression: Any,
        shapes: tuple[tuple[int, ...], ...] = SHAPES,
        dtype: torch.dtype = torch.float32,
        prefix: str = "layer",
        **how: Any,
    ) -> None:
        self.weights = [torch.nn.Parameter(torch.zeros(shape, dtype=dtype)) for shape in shapes]
        self.names = [f"{prefix}{i}" for i in range(len(shapes))]
        self.optimizer: Any = hvd.DistributedOptimizer(
            torch.optim.SGD(self.weights, lr=1.0),
            zip(self.names, self.weights, strict=True),
            compression=compression,
            **how,
        )

    def give(self, step: int, rank: int | None = None) -> None:
        for weight in self.weights:
            gradient = given(hvd.rank() if rank is None else rank, step, tuple(weight.shape))
            weight.grad = torch.from_numpy(gradient).to(weight.dtype)

    def step(self, step: int) -> None:
        self.give(step)
        self.optimizer.step()

    @property
    def values(self) -> list[Array]:
        return [weight.detach().numpy().copy() for weight in self.weights]

    @property
    def residuals(self) -> dict[int, torch.Tensor]:
        kept: dict[int, torch.Tensor] = self.optimizer.state_dict()[RESIDUALS]["of"]
        return kept


# ---- Against the oracles ----


@several
def test_powersgd_steps_as_the_oracle_does() -> None:
    training = Training(powersgd, dtype=torch.float64)
    oracles = [
        approximations(name, shape, RANK, hvd.size())
        for name, shape in zip(training.names, SHAPES, strict=True)
        if len(shape) > 1
    ]
    wanted = [np.zeros(shape) for shape in SHAPES]
    for step in range(4):
        training.step(step)
        whole = iter(oracles)
        for value in wanted:
            if value.ndim > 1:
                value -= next(next(whole))
            else:
                value -= np.mean([given(r, step, value.shape) for r in range(hvd.size())], axis=0)
    for value, expected in zip(training.values, wanted, strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())


@several
@pytest.mark.parametrize("together", [False, True])
def test_topk_steps_as_the_oracle_does_to_the_bit(together: bool) -> None:
    shapes = [(300, 70), (5_000,)] if together else [(300, 70)]
    training = Training(topk, tuple(shapes), groups=1)
    oracle = sums_of_largest(shapes, DENSITY, hvd.size())
    wanted = [np.zeros(shape, np.float32) for shape in shapes]
    for step in range(4):
        training.step(step)
        for value, mean in zip(wanted, next(oracle), strict=True):
            value -= mean
        for value, expected in zip(training.values, wanted, strict=True):
            assert np.array_equal(value, expected)


# ---- Both ----


@several
@each
@pytest.mark.parametrize("op", [hvd.Average, hvd.Sum], ids=["average", "sum"])
def test_all_that_was_sent_and_what_is_kept_add_up_to_the_gradients(
    compression: Any, op: int
) -> None:
    training = Training(compression, op=op)
    for step in range(10):
        training.step(step)
    for i, (value, shape) in enumerate(zip(training.values, SHAPES, strict=True)):
        total = sum(given(r, s, shape) for s in range(10) for r in range(hvd.size()))
        kept = training.residuals.get(i, torch.zeros(shape))
        owed = hvd.allreduce(kept.double(), op=hvd.Sum, name=f"owed{i}").numpy()
        updates = -value * (hvd.size() if op == hvd.Average else 1)
        assert np.abs(updates + owed - total).max() < 1e-4 * np.abs(total).max()
        if compression is topk or len(shape) > 1:
            assert np.abs(owed).max() > 1e-2 * np.abs(total).max()


@each
def test_all_ranks_get_the_same_bits(compression: Any) -> None:
    training = Training(compression)
    for step in range(3):
        training.step(step)
    for i, weight in enumerate(training.weights):
        everywhere = hvd.allgather(weight.detach()[None], name=f"same{i}")
        assert all(torch.equal(other, everywhere[0]) for other in everywhere)


def bytes_of(compression: Any, shapes: list[tuple[int, ...]]) -> int:
    """What a rank gives to the collectives in a step."""
    gradients = [torch.from_numpy(given(0, 0, shape)).float() for shape in shapes]
    names = [str(i) for i in range(len(shapes))]
    transformation = transformation_of(compression)
    assert transformation is not None
    steps = transformation.reduce(names, names, gradients, lambda ranks: 1 / ranks)
    wanted, total = next(steps), 0
    while True:
        sums = [wanted.row] if hasattr(wanted, "row") else wanted.tensors
        total += sum(tensor.nbytes for tensor in sums)
        try:
            wanted = steps.send(sums[0][None])
        except StopIteration:
            return total


def test_few_bytes_are_sent() -> None:
    shapes = [(512, 128), (512,)]
    assert bytes_of(hvd.Compression.powersgd(2), shapes) == 4 * (2 * (512 + 128) + 512)
    blocks, kept = 17, 41  # the 16 blocks of the matrix, and one
    assert bytes_of(hvd.Compression.topk(0.01), shapes) == blocks * (4 + 2 * kept)
    assert bytes_of(hvd.Compression.topk(1.0), [(10,)]) == 4 + 2 * 10


@several
@each
def test_an_optimizer_goes_on_where_its_state_was_saved(compression: Any) -> None:
    whole, first, second = (Training(compression) for _ in range(3))
    for step in range(4):
        whole.step(step)
    for step in range(2):
        first.step(step)
    saved = first.optimizer.state_dict()
    with torch.no_grad():
        for weight, trained in zip(second.weights, first.weights, strict=True):
            weight.copy_(trained)
    second.optimizer.load_state_dict(saved)
    for step in (2, 3):
        second.step(step)
    for value, expected in zip(second.values, whole.values, strict=True):
        assert np.array_equal(value, expected)


@several
def test_a_broadcast_gives_all_ranks_the_factors_and_leaves_each_its_residuals() -> None:
    training = Training(powersgd)
    training.step(0)
    before = training.residuals
    if hvd.rank() > 0:
        training.optimizer.load_shared_state(None)
    hvd.broadcast_optimizer_state(training.optimizer, root_rank=0)
    factors = training.optimizer.state_dict()["compression_factors"]
    assert sorted(factors) == [0, 3]
    for i, factor in factors.items():
        everywhere = hvd.allgather(factor[None], name=f"factor{i}")
        assert all(torch.equal(other, everywhere[0]) for other in everywhere)
    assert all(torch.equal(training.residuals[i], kept) for i, kept in before.items())


@several
@each
def test_a_torch_state_restores_what_was_committed(compression: Any) -> None:
    training = Training(compression)
    model = torch.nn.ParameterList(training.weights)
    training.step(0)
    state: Any = hvd.elastic.TorchState(model, training.optimizer)
    state.save()
    training.step(1)
    expected = training.values
    training.step(2)
    state.restore()
    training.step(1)
    for value, wanted in zip(training.values, expected, strict=True):
        assert np.array_equal(value, wanted)


@several
@each
def test_discarded_gradients_leave_nothing_behind(compression: Any) -> None:
    training, other = Training(compression), Training(compression)
    for each_one in (training, other):
        each_one.step(0)
    for weight in training.weights:
        gradient = torch.from_numpy(given(hvd.rank(), 5, tuple(weight.shape))).float()
        (weight * gradient).sum().backward()
    training.optimizer.zero_grad()
    for each_one in (training, other):
        each_one.step(1)
    for value, wanted in zip(training.values, other.values, strict=True):
        assert np.array_equal(value, wanted)


@several
@each
@pytest.mark.parametrize("odd", [float("inf"), float("nan")])
def test_gradients_that_are_not_finite_are_so_on_all_ranks_and_leave_nothing_behind(
    compression: Any, odd: float
) -> None:
    training = Training(compression, ((70, 80),))
    training.give(0)
    if hvd.rank() == 0:
        assert training.weights[0].grad is not None
        training.weights[0].grad[3, 3] = odd
    training.optimizer.synchronize()
    assert training.weights[0].grad is not None
    assert not bool(training.weights[0].grad.isfinite().all())
    assert bool(training.residuals[0].isfinite().all())
    with training.optimizer.skip_synchronize():
        training.optimizer.zero_grad()
    training.step(1)
    assert bool(training.weights[0].isfinite().all())


@each
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_halves_keep_their_type(compression: Any, dtype: torch.dtype) -> None:
    training = Training(compression, dtype=dtype)
    training.step(0)
    assert {weight.dtype for weight in training.weights} == {dtype}


@several
@each
def test_gradients_of_any_layout_and_none_at_all_are_sent(compression: Any) -> None:
    training = Training(compression, ((16, 8, 3, 3), (30, 30)))
    plain = Training(compression, ((16, 8, 3, 3), (30, 30)))
    for step in range(2):
        for each_one in (training, plain):
            each_one.give(step)
        if hvd.rank() == 0:
            training.weights[1].grad = None
            plain.weights[1].grad = torch.zeros(30, 30)
        first = training.weights[0]
        assert first.grad is not None
        first.grad = first.grad.to(memory_format=torch.channels_last)
        for each_one in (training, plain):
            each_one.optimizer.step()
    for value, wanted in zip(training.values, plain.values, strict=True):
        np.testing.assert_allclose(value, wanted, rtol=1e-4, atol=1e-4)


@each
def test_an_optimizer_of_a_process_set_compresses_in_it(
    compression: Any, pair: hvd.ProcessSet
) -> None:
    training = Training(compression, process_set=pair)
    training.step(0)
    several_here = pair.included() and len(pair.ranks or ()) > 1
    assert (RESIDUALS in training.optimizer.state_dict()) == several_here


@several
def test_who_has_joined_contributes_zeros_to_powersgd() -> None:
    training = Training(powersgd, ((70, 80),), torch.float64)
    if hvd.rank() == 0:
        oracle = approximations("layer0", (70, 80), RANK, 1)
        for step in range(3):
            before = training.values[0]
            training.step(step)
            moved = before - training.values[0]
            np.testing.assert_allclose(moved, next(oracle) / hvd.size(), rtol=1e-8, atol=1e-8)
    hvd.join()


@several
def test_topk_needs_no_default_type() -> None:
    torch.set_default_dtype(torch.float64)
    try:
        param = torch.nn.Parameter(torch.zeros(100, dtype=torch.float32))
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD([param], lr=1.0), compression=hvd.Compression.topk(density=1.0)
        )
        param.mul(7.0).sum().backward()
        optimizer.step()
    finally:
        torch.set_default_dtype(torch.float32)
    assert param.tolist() == [-7.0] * 100


def test_diloco_exchanges_the_largest_changes() -> None:
    def model() -> torch.nn.Module:
        torch.manual_seed(3)
        return torch.nn.Linear(90, 50, bias=False)

    own = model()
    inner = torch.optim.SGD(own.parameters(), lr=1.0)
    optimizer: Any = hvd.DiLoCo(
        inner, own, sync_every=1, outer_lr=1.0, outer_momentum=0.0, compression=topk
    )
    wanted = model().weight.detach().numpy().copy()
    for step, (mean,) in zip(
        range(3), sums_of_largest([(50, 90)], DENSITY, hvd.size()), strict=False
    ):
        own.weight.grad = torch.from_numpy(given(hvd.rank(), step, (50, 90))).float()
        optimizer.step()
        wanted -= mean
        np.testing.assert_allclose(own.weight.detach().numpy(), wanted, atol=2e-5)


# ---- What is wrong ----


@pytest.mark.parametrize("rank", [0, -1, 1.5])
def test_powersgd_needs_a_rank(rank: Any) -> None:
    with pytest.raises(ValueError, match=r"powersgd: rank=.* must be an integer of at least 1"):
        hvd.Compression.powersgd(rank)


@pytest.mark.parametrize("density", [0, -0.1, 1.01, float("nan")])
def test_topk_needs_a_share(density: float) -> None:
    with pytest.raises(ValueError, match=r"topk: density=.* must be above 0 and at most 1"):
        hvd.Compression.topk(density)


@each
def test_transformations_are_for_gradients_that_are_added(compression: Any) -> None:
    with pytest.raises(ValueError, match=r"is for hvd\.DistributedOptimizer"):
        hvd.allreduce(torch.ones(3), compression=compression)
    weight = torch.nn.Parameter(torch.zeros(3))
    with pytest.raises(ValueError, match=r"op=Adasum .* Compression\.(powersgd|topk)"):
        hvd.DistributedOptimizer(torch.optim.SGD([weight]), compression=compression, op=hvd.Adasum)


def test_diloco_refuses_what_is_for_matrices() -> None:
    model = torch.nn.Linear(2, 2)
    with pytest.raises(ValueError, match=r"hvd\.DiLoCo: Compression\.powersgd\(rank=3\) is for"):
        hvd.DiLoCo(torch.optim.SGD(model.parameters()), model, 2, compression=powersgd)


@several
@each
def test_sparse_gradients_are_refused(compression: Any) -> None:
    embedding = torch.nn.Embedding(100, 40, sparse=True)
    optimizer: Any = hvd.DistributedOptimizer(
        torch.optim.SGD(embedding.parameters(), lr=1.0),
        embedding.named_parameters(),
        compression=compression,
    )
    with pytest.raises(ValueError, match=r"cannot send sparse gradients, such as that of weight"):
        embedding(torch.tensor([1, 2])).sum().backward()
    with pytest.raises(RuntimeError, match=r"could not be started.*sparse_as_dense=True"):
        optimizer.step()


@several
@pytest.mark.parametrize("other", [hvd.Compression.none, hvd.Compression.powersgd(2), topk])
def test_another_compression_on_one_rank_is_an_error_on_all(other: Any) -> None:
    # The operations of these names stay in flight.
    training = Training(other if hvd.rank() == 0 else powersgd, prefix=other.__qualname__)
    training.give(0)
    with pytest.raises(hvd.HorovodInternalError, match="compress gradients in different ways"):
        training.optimizer.step()
