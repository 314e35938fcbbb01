"""Collectives inside functions that torch.compile compiles: in the graph, and right."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
import torch

import sirtaki.torch as hvd
from tests import needs

needs_compiler = needs.program("g++")
BACKENDS = ["aot_eager", pytest.param("inductor", marks=needs_compiler)]


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()
    if torch.__version__ < (2, 8):
        torch._dynamo.config.capture_dynamic_output_shape_ops = True


def weight() -> float:
    return float(hvd.rank() + 1)


def rows() -> int:
    return hvd.rank() + 2


OPERATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "average": lambda x: hvd.allreduce(x),
    "sum": lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=2.0, name="sum"),
    "compressed": lambda x: hvd.allreduce(x, compression=hvd.Compression.fp16),
    "group": lambda x: torch.cat(hvd.grouped_allreduce([x, x + 1], op=hvd.Max)),
    "allgather": lambda x: hvd.allgather(x),
    "grouped allgather": lambda x: torch.cat(hvd.grouped_allgather([x, x * 3], name="g")),
    "broadcast": lambda x: hvd.broadcast(x, 0, name="b"),
    "alltoall": lambda x: hvd.alltoall(x),
    "alltoall with splits": lambda x: hvd.alltoall(x, [1] * hvd.size())[0],
    "reducescatter": lambda x: hvd.reducescatter(x, op=hvd.Sum),
    "grouped reducescatter": lambda x: torch.cat(hvd.grouped_reducescatter([x, x + 1])),
}


def run(
    operation: Callable[[torch.Tensor], torch.Tensor], compile: Callable
) -> tuple[torch.Tensor, torch.Tensor]:
    """The operation between other work, and the gradient."""
    x = (torch.arange(4.0 * hvd.size()).reshape(-1, 2) * 0.25).requires_grad_()

    @compile
    def function(x: torch.Tensor) -> torch.Tensor:
        return operation(torch.sin(x) * 2) ** 2

    y = function(x)
    (y * weight()).sum().backward()
    assert x.grad is not None
    return y.detach(), x.grad


@pytest.mark.parametrize("name", OPERATIONS)
def test_graphs_have_no_breaks_and_results_and_gradients_are_right(name: str) -> None:
    expected = run(OPERATIONS[name], lambda function: function)
    compiled = run(OPERATIONS[name], torch.compile(backend="aot_eager", fullgraph=True))
    torch.testing.assert_close(compiled, expected)


@pytest.mark.slow
@needs_compiler
def test_the_default_backend_gives_the_same() -> None:
    names = ["sum", "group", "allgather", "broadcast", "alltoall with splits", "reducescatter"]

    def several(x: torch.Tensor) -> torch.Tensor:
        return torch.stack([OPERATIONS[name](x).sum() for name in names])

    expected = run(several, lambda function: function)
    torch.testing.assert_close(run(several, torch.compile(fullgraph=True)), expected)


def test_first_dimensions_may_differ_between_ranks() -> None:
    x = torch.full((rows(), 2), weight(), requires_grad=True)

    @torch.compile(backend="aot_eager", fullgraph=True)
    def function(x: torch.Tensor) -> torch.Tensor:
        return (hvd.allgather(x * 2) ** 2).sum()

    loss = function(x)
    total = sum(8.0 * (rank + 2) * (rank + 1) ** 2 for rank in range(hvd.size()))
    torch.testing.assert_close(loss, torch.tensor(total))
    loss.backward()
    torch.testing.assert_close(x.grad, 8 * x.detach())


@pytest.mark.parametrize("backend", BACKENDS)
def test_in_place_operations_overwrite_their_tensors(backend: str) -> None:
    @torch.compile(backend=backend, fullgraph=True)
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = x + 1
        hvd.allreduce_(z, op=hvd.Sum)
        hvd.broadcast_(y, root_rank=0)
        hvd.grouped_allreduce_([x, y], op=hvd.Max, name="pair")
        return z * y

    x, y = torch.full((3,), weight()), torch.full((3,), 5 + weight())
    result = function(x, y)
    total = sum(rank + 2.0 for rank in range(hvd.size()))
    assert x.tolist() == [hvd.size()] * 3
    assert y.tolist() == [6.0] * 3
    assert result.tolist() == [total * 6.0] * 3


def test_an_exported_program_can_be_saved_and_loaded() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return hvd.allreduce(x * 2, op=hvd.Sum)

    file = io.BytesIO()
    torch.export.save(torch.export.export(Model(), (torch.ones(3),)), file)
    file.seek(0)
    loaded = torch.export.load(file).module()
    assert loaded(torch.ones(3)).tolist() == [2.0 * hvd.size()] * 3


def test_shapes_may_change_between_calls() -> None:
    @torch.compile(backend="aot_eager", fullgraph=True, dynamic=True)
    def function(x: torch.Tensor) -> torch.Tensor:
        return hvd.allreduce(x * 2, op=hvd.Sum) + hvd.reducescatter(x, op=hvd.Sum).sum()

    for length in (hvd.size(), 5 * hvd.size(), 7 * hvd.size()):
        expected = 2.0 * hvd.size() + length
        assert function(torch.ones(length)).tolist() == [expected] * length


def test_rank_and_size_can_be_asked_for() -> None:
    @torch.compile(backend="aot_eager", fullgraph=True)
    def function(x: torch.Tensor) -> torch.Tensor:
        return hvd.allreduce(x * hvd.rank(), op=hvd.Sum) / hvd.size()

    expected = sum(range(hvd.size())) / hvd.size()
    torch.testing.assert_close(function(torch.ones(3)), torch.full((3,), expected))


def test_a_process_set_can_be_given(pair: hvd.ProcessSet) -> None:
    @torch.compile(backend="aot_eager", fullgraph=True)
    def function(x: torch.Tensor) -> torch.Tensor:
        return hvd.allreduce(x + 1, op=hvd.Sum, process_set=pair) * 2

    if pair.included():
        assert function(torch.ones(3)).tolist() == [4.0 * pair.size()] * 3


def test_compiled_and_uncompiled_ranks_fit_together() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return (hvd.allgather(hvd.allreduce(x * 2, op=hvd.Sum, name="mixed")) ** 2).sum()

    if hvd.rank() == 0:
        function = torch.compile(function, backend="aot_eager", fullgraph=True)
    x = torch.ones(3, requires_grad=True)
    function(x).backward()
    torch.testing.assert_close(x.grad, torch.full((3,), 8.0 * hvd.size() ** 2))


ASYNCHRONOUS: dict[str, Callable[[torch.Tensor], object]] = {
    "sum": lambda x: hvd.allreduce_async(x, op=hvd.Sum),
    "in place": lambda x: hvd.allreduce_async_(x),
    "group": lambda x: hvd.grouped_allreduce_async([x, x + 1]),
    "group in place": lambda x: hvd.grouped_allreduce_async_([x, x + 1]),
    "allgather": lambda x: hvd.allgather_async(x),
    "grouped allgather": lambda x: hvd.grouped_allgather_async([x, x + 1]),
    "broadcast": lambda x: hvd.broadcast_async(x, 0),
    "broadcast in place": lambda x: hvd.broadcast_async_(x, 0),
    "alltoall": lambda x: hvd.alltoall_async(x),
    "reducescatter": lambda x: hvd.reducescatter_async(x),
    "grouped reducescatter": lambda x: hvd.grouped_reducescatter_async([x, x + 1]),
    "sparse": lambda x: hvd.sparse_allreduce_async(x.to_sparse(), "sparse", hvd.Sum),
}


@pytest.mark.parametrize("start", ASYNCHRONOUS.values(), ids=ASYNCHRONOUS)
def test_asynchronous_operations_break_the_graph_but_work(
    start: Callable[[torch.Tensor], object],
) -> None:
    def function(x: torch.Tensor) -> object:
        return hvd.synchronize(start(x * weight()))

    x = torch.arange(2.0 * hvd.size())
    found = torch.compile(function, backend="aot_eager")(x)
    torch.testing.assert_close(found, function(x))


def test_layers_that_communicate_work_in_a_compiled_model() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), hvd.SyncBatchNorm(3)).double()
    compiled = torch.compile(net, backend="aot_eager")
    generator = torch.Generator().manual_seed(hvd.rank())
    x = torch.randn(5, 4, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(compiled(x), net(x))


def test_errors_come_through() -> None:
    @torch.compile(backend="aot_eager", fullgraph=True)
    def function(x: torch.Tensor) -> torch.Tensor:
        return hvd.allreduce(x, name="shapes") * 2

    if hvd.size() > 1:
        with pytest.raises(hvd.HorovodInternalError, match="shape"):
            function(torch.ones(2 + hvd.rank()))
    assert function(torch.ones(7)).tolist() == [2.0] * 7
