"""Steps in parts, whose gradients are exact sums: the same on any number of ranks."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import sirtaki.torch as hvd
from sirtaki.core.operations import fixed_point
from sirtaki.core.world.state import current_world

PARTS = 12
several = pytest.mark.skipif("hvd.size() == 1", reason="one rank cannot disagree with itself")


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def state_of(model: torch.nn.Module, samples: int = 1200, **options: Any) -> Any:
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.5),
        named_parameters=model.named_parameters(),
        reproducible=True,
        **options,
    )
    sampler = hvd.elastic.ConstantBatchSampler(range(samples), 2, PARTS, shuffle=False)
    return hvd.elastic.TorchState(model, optimizer, sampler=sampler)


class Weight(torch.nn.Module):
    """One weight, whose gradient is what it is given."""

    def __init__(self, dtype: torch.dtype = torch.float32, size: int = 3) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(size, dtype=dtype))

    def forward(self, gradient: torch.Tensor) -> torch.Tensor:
        return (self.weight * gradient.to(self.weight.dtype)).sum()


def gradient_of(state: Any, gradient: Callable[[int], torch.Tensor]) -> torch.Tensor:
    """The gradient of a step whose parts have these."""
    for part in state.parts():
        with part:
            state.model(gradient(part.index)).backward()
    found: torch.Tensor = state.model.weight.grad
    return found.clone()


def test_a_gradient_is_the_mean_of_the_parts_rounded_once() -> None:
    state = state_of(Weight())
    values = [torch.tensor([0.1 * part, 1e-5, 2.0**-part]) for part in range(PARTS)]
    for _ in range(2):
        found = gradient_of(state, values.__getitem__)
        exact = [math.fsum(float(v[i]) for v in values) / PARTS for i in range(3)]
        assert found.tolist() == torch.tensor(exact, dtype=torch.float32).tolist()
        state.optimizer.step()
        state.sampler.record_step()


def test_sum_does_not_divide() -> None:
    state = state_of(Weight(), op=hvd.Sum)
    assert gradient_of(state, lambda part: torch.full((3,), float(part))).tolist() == [66.0] * 3


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_small_floats_are_summed_exactly(dtype: torch.dtype) -> None:
    state = state_of(Weight(dtype), op=hvd.Sum)
    found = gradient_of(state, lambda part: torch.tensor([256.0, 1.0, 2.0**-14]))
    assert found.dtype == dtype
    assert found.tolist() == [3072.0, 12.0, 12 * 2.0**-14]


def test_a_gradient_that_grows_or_shrinks_makes_the_step_begin_again() -> None:
    state = state_of(Weight())
    for size in (1.0, 1e6, 1e-30, 0.0, 5e-324, 1.0):
        found = gradient_of(state, lambda _, size=size: torch.full((3,), size))
        assert found.tolist() == torch.full((3,), size).tolist()
        state.optimizer.step()
        state.sampler.record_step()


def test_what_parts_draw_does_not_change_when_the_step_begins_again() -> None:
    state = state_of(Weight())
    drawn: dict[int, set[float]] = {}
    before = torch.get_rng_state()
    for part in state.parts():  # the first step comes twice
        with part:
            drawn.setdefault(part.index, set()).add(float(torch.rand(())))
            state.model(torch.ones(3)).backward()
    assert all(len(values) == 1 for values in drawn.values())
    together = set().union(*hvd.allgather_object(set().union(*drawn.values())))
    assert len(together) == PARTS
    assert torch.equal(before, torch.get_rng_state())


def test_infinities_and_nans_arrive_on_all_ranks() -> None:
    state = state_of(Weight(size=4))
    odd = {0: math.inf, 7: math.nan, 11: -math.inf}

    def gradient(part: int) -> torch.Tensor:
        value = odd.get(part, 1.0)
        return torch.tensor([1.0, value if part != 7 else 1.0, value, value if part == 0 else 1.0])

    for _ in range(2):
        first, opposite, nan, infinite = gradient_of(state, gradient).tolist()
        assert first == 1.0
        assert math.isnan(opposite)
        assert math.isnan(nan)
        assert infinite == math.inf
        state.model.weight.grad = None


class TwoHeads(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used = torch.nn.Linear(2, 1, bias=False)
        self.seldom = torch.nn.Linear(2, 1, bias=False)
        self.never = torch.nn.Linear(2, 1, bias=False)

    def forward(self, x: torch.Tensor, part: int) -> torch.Tensor:
        head = self.seldom if part == 5 else self.used
        out: torch.Tensor = head(x).sum()
        return out


def test_a_parameter_has_a_gradient_if_some_part_used_it() -> None:
    state = state_of(TwoHeads())
    for part in state.parts():
        with part:
            state.model(torch.ones(1, 2), part.index).backward()
    model = state.model
    assert model.never.weight.grad is None
    assert model.seldom.weight.grad.tolist() == [[pytest.approx(1 / 12, rel=1e-7)] * 2]
    assert model.used.weight.grad.tolist() == [[pytest.approx(11 / 12, rel=1e-7)] * 2]


def test_two_backward_passes_in_a_part_are_one_gradient() -> None:
    state = state_of(Weight(), op=hvd.Sum)
    for part in state.parts():
        with part:
            state.model(torch.full((3,), 1.0)).backward()
            state.model(torch.full((3,), 2.0**-24)).backward()  # lost in float32
    assert state.model.weight.grad.tolist() == [12.0] * 3


def test_reports_are_means_of_all_parts() -> None:
    state = state_of(Weight())
    for part in state.parts():
        with part:
            loss = state.model(torch.ones(3)) + part.index
            loss.backward()
            part.report(loss=loss, twice=2 * part.index)
    assert state.reported == {"loss": 5.5, "twice": 11.0}


def test_batch_statistics_are_folded_part_by_part() -> None:
    torch.manual_seed(3)
    data = torch.randn(2 * PARTS, 4)
    here, alone = torch.nn.BatchNorm1d(4), torch.nn.BatchNorm1d(4)
    state = state_of(here, samples=len(data))
    for part in state.parts():
        with part:
            here(data[part.samples]).square().sum().backward()
    for part in range(PARTS):
        alone(data[2 * part : 2 * part + 2])
    assert torch.equal(here.num_batches_tracked, alone.num_batches_tracked)
    torch.testing.assert_close(here.running_mean, alone.running_mean, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(here.running_var, alone.running_var, rtol=1e-6, atol=1e-7)


class Counting(Weight):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(2, dtype=dtype))

    def forward(self, gradient: torch.Tensor) -> torch.Tensor:
        self.seen += gradient[:2].to(self.seen.dtype)
        return super().forward(gradient)


def test_other_buffers_are_the_mean_of_the_parts() -> None:
    state = state_of(Counting(torch.float32))
    gradient_of(state, lambda part: torch.full((3,), float(part)))
    assert state.model.seen.tolist() == [5.5, 5.5]


def test_a_buffer_of_integers_that_changes_is_refused() -> None:
    state = state_of(Counting(torch.int64))
    with pytest.raises(ValueError, match=r"the buffer seen \(torch.int64\) was changed in a part"):
        gradient_of(state, lambda part: torch.full((3,), 1.0))


def test_an_error_in_a_part_leaves_the_buffers_as_they_were() -> None:
    model = torch.nn.BatchNorm1d(2)
    state = state_of(model)

    def fail() -> None:
        with next(state.parts()):
            model(torch.randn(4, 2))
            model(torch.randn(4, 2))
            raise ArithmeticError("of the program")

    with pytest.raises(ArithmeticError, match="of the program"):
        fail()
    assert model.momentum == 0.1
    assert int(model.num_batches_tracked) == 0
    assert model.running_mean.tolist() == [0.0, 0.0]
    state.optimizer._forget_gradients()


def test_clipping_and_scaling_see_the_whole_gradient() -> None:
    state = state_of(Weight(size=4))
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for gradients in ([2.0] * 4, [math.inf] * 4):
        for part in state.parts():
            with part:
                scaler.scale(state.model(torch.tensor(gradients))).backward()
        scaler.unscale_(state.optimizer)
        if gradients[0] == 2.0:
            assert float(torch.nn.utils.clip_grad_norm_(state.model.parameters(), 1.0)) == 4.0
        scaler.step(state.optimizer)
        scaler.update()
        state.sampler.record_step()
    torch.testing.assert_close(state.model.weight.detach(), torch.full((4,), -0.25))
    assert scaler.get_scale() == 512.0


def test_a_rank_that_leaves_the_loop_fails_on_all() -> None:
    state = state_of(Weight())

    def leave() -> None:
        for part in state.parts():
            with part:
                state.model(torch.ones(3)).backward()
            if hvd.rank() == 0:
                state.optimizer.step()

    with pytest.raises(RuntimeError, match=r"a rank left the loop over state\.parts"):
        leave()
    assert gradient_of(state, lambda _: torch.ones(3)).tolist() == [1.0] * 3


def test_step_needs_a_whole_loop() -> None:
    state = state_of(Weight())
    state.model(torch.ones(3)).backward()
    with pytest.raises(RuntimeError, match="and there was none since the last step"):
        state.optimizer.step()


def test_a_part_is_computed_within_its_context() -> None:
    state = state_of(Weight())
    parts = state.parts()
    given = next(parts)
    with pytest.raises(RuntimeError, match=r"part \d+ was not computed: put the forward"):
        next(parts)
    with given:
        state.model(torch.ones(3)).backward()
    with pytest.raises(RuntimeError, match=r"part \d+ is not the current one"):
        given.__enter__()


def test_the_end_of_an_epoch_is_an_error() -> None:
    state = state_of(Weight(), samples=2 * PARTS)
    assert state.sampler.steps_left == 1
    gradient_of(state, lambda _: torch.ones(3))
    state.optimizer.step()
    state.sampler.record_step()
    with pytest.raises(RuntimeError, match=r"sampler\.set_epoch"):
        state.parts()


def test_a_loader_gives_each_part_its_batch_also_when_the_step_begins_again() -> None:
    state = state_of(Weight())
    data = torch.arange(1200)
    loader = torch.utils.data.DataLoader(data, batch_sampler=state.sampler, num_workers=1)  # type: ignore[arg-type]
    for size in (1.0, 1e9):  # the first step begins again, and the second
        given = []
        for part, batch in state.parts(loader):
            assert batch.tolist() == part.samples
            with part:
                state.model(torch.full((3,), size)).backward()
            given.append(part.index)
        assert given == 2 * list(range(hvd.rank(), PARTS, hvd.size()))
        state.optimizer.step()
        state.sampler.record_step()


def test_a_loader_of_another_sampler_is_refused() -> None:
    state = state_of(Weight())
    with pytest.raises(ValueError, match="DataLoader\\(data, batch_sampler=sampler\\)"):
        state.parts(torch.utils.data.DataLoader(range(9)))  # type: ignore[arg-type]


def test_a_state_without_a_sampler_is_refused() -> None:
    model = Weight()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.5), reproducible=True
    )
    with pytest.raises(ValueError, match="with a ConstantBatchSampler, and this one has 0"):
        hvd.elastic.TorchState(model, optimizer).parts()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"op": hvd.Adasum}, "op other than Average and Sum"),
        ({"compression": hvd.Compression.fp16}, "compression"),
        ({"backward_passes_per_step": 2}, "backward_passes_per_step"),
        ({"gradient_predivide_factor": 2.0}, "gradient_predivide_factor"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=f"reproducible=True cannot be used with {named}"):
        state_of(Weight(), **options)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex64])
def test_parameters_of_other_types_are_refused(dtype: torch.dtype) -> None:
    with pytest.raises(TypeError, match=f"the parameter weight is {dtype}"):
        state_of(Weight(dtype))


def test_gradients_outside_of_cpu_memory_are_refused() -> None:
    model = Weight()
    model.weight = torch.nn.Parameter(torch.zeros(3, device="meta"))
    with pytest.raises(TypeError, match="the parameter weight is on meta"):
        state_of(model)


def test_sparse_gradients_are_refused() -> None:
    state = state_of(torch.nn.Embedding(5, 2, sparse=True))
    part = next(state.parts())
    part.__enter__()
    state.model(torch.tensor([1])).sum().backward()
    with pytest.raises(TypeError, match="the gradient of weight is sparse"):
        part.__exit__(None, None, None)
    state.optimizer._forget_gradients()


def test_statistics_that_ranks_exchange_are_refused() -> None:
    state = state_of(hvd.SyncBatchNorm(3))
    with pytest.raises(ValueError, match="cannot use SyncBatchNorm"):
        state.parts()


def test_another_number_of_threads_than_in_the_steps_before_is_refused() -> None:
    state = state_of(Weight())
    gradient_of(state, lambda _: torch.ones(3))
    state.optimizer.step()
    torch.set_num_threads(2)
    with pytest.raises(RuntimeError, match="set OMP_NUM_THREADS=1 for all ranks"):
        state.parts()


@several
def test_ranks_that_differ_in_exponents_raise_and_can_go_on() -> None:
    state = state_of(Weight())
    loaded = after_a_step(1.0)
    if hvd.rank() == 0:
        state.optimizer.load_state_dict(loaded)
    with pytest.raises(ValueError, match="exponents of the gradients"):
        gradient_of(state, lambda _: torch.ones(3))
    other = state_of(Weight())
    assert gradient_of(other, lambda part: torch.full((3,), float(part))).tolist() == [5.5] * 3


@several
def test_ranks_with_other_parameters_raise() -> None:
    state = state_of(TwoHeads() if hvd.rank() == 0 else Weight())
    x = (torch.ones(1, 2), 0) if hvd.rank() == 0 else (torch.ones(3),)

    def step() -> None:
        for part in state.parts():
            with part:
                state.model(*x).backward()

    with pytest.raises(ValueError, match="names of the parameters"):
        step()


@several
def test_a_broadcast_of_the_optimizers_state_has_the_exponents() -> None:
    state, loaded = state_of(Weight()), after_a_step(1.0)
    if hvd.rank() == 0:
        state.optimizer.load_state_dict(loaded)
    hvd.broadcast_optimizer_state(state.optimizer, 0)
    assert parts_of_a_step(state, 1.0) == list(range(hvd.rank(), PARTS, hvd.size()))


@several
def test_a_rank_without_parts_takes_part() -> None:
    state = state_of(Weight())
    state.sampler._deals = [(0, list(range(PARTS)) if hvd.rank() == 1 else [])]
    for _ in range(2):
        found = gradient_of(state, lambda part: torch.full((3,), float(part)))
        assert found.tolist() == [5.5] * 3
        state.optimizer.step()
        state.sampler.record_step()


def after_a_step(size: float) -> dict[str, Any]:
    """An optimizer's state as after a step with gradients of this size."""
    state: dict[str, Any] = state_of(Weight()).optimizer.state_dict()
    bits = int(torch.tensor(size).view(torch.int32))
    kept = {"exponents": [fixed_point.exponent_for(bits, PARTS)], "threads": 1}
    state["state"]["reproducible"] = kept
    return state


def parts_of_a_step(state: Any, size: float) -> list[int]:
    """The parts that this rank was given in a step with such gradients."""
    given = []
    for part in state.parts():
        with part:
            state.model(torch.full((3,), size)).backward()
        given.append(part.index)
    return given


@several
def test_ranks_that_differ_are_told_in_what() -> None:
    state = state_of(Weight())
    state.sampler.seed = hvd.rank()
    with pytest.raises(ValueError, match=r"reproducible training: seed is . on rank ."):
        gradient_of(state, lambda _: torch.ones(3))


def test_a_newcomer_after_an_overflow_goes_on_with_the_state_dict() -> None:
    state = state_of(Weight())
    mine = list(range(hvd.rank(), PARTS, hvd.size()))
    for size in (1.0, 1e9):  # the first gradient, and one that has grown
        assert parts_of_a_step(state, size) == 2 * mine
        state.optimizer.step()
        state.sampler.record_step()
    other = state_of(Weight())
    other.optimizer.load_state_dict(state.optimizer.state_dict())
    assert parts_of_a_step(other, 1e9) == mine


@several
@pytest.mark.slow
def test_a_slow_rank_gets_fewer_parts_of_the_same_step() -> None:
    model = Weight()
    state = state_of(model, samples=10**5)
    state.sampler.balance = True
    loader = torch.utils.data.DataLoader(torch.arange(10**5), batch_sampler=state.sampler)  # type: ignore[arg-type]
    delay = 0.04 if hvd.rank() == 0 else 0.02
    equal = len(state.sampler.mine)
    began = time.monotonic()
    while len(state.sampler.mine) == equal and time.monotonic() < began + 60:
        for part, batch in state.parts(loader):
            assert batch.tolist() == part.samples
            with part:
                time.sleep(delay)
                model(torch.full((3,), float(part.index))).backward()
        assert model.weight.grad.tolist() == [5.5] * 3
        state.optimizer.step()
        state.sampler.record_step()
    together = hvd.allgather_object(state.sampler.mine)
    assert sorted(part for mine in together for part in mine) == list(range(PARTS))
    assert current_world().parts == [len(mine) for mine in together]
    assert len(together[0]) < len(together[1])
