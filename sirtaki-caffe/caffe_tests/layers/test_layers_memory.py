"""Layers do not depend on the order in which their bottoms and gradients lie in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import caffe
from caffe_tests.layers.layer_runs import Case, build, build_case
from caffe_tests.layers.test_layers_gradients import CASES, weights


def turned(blob: torch.Tensor) -> torch.Tensor:
    """The same values with the first two axes swapped in memory, channels innermost of four."""
    if blob.dim() == 4:
        return blob.contiguous(memory_format=torch.channels_last)
    return blob.transpose(0, 1).contiguous().transpose(0, 1) if blob.dim() > 1 else blob


def passes(case: Case, turn: bool) -> list[torch.Tensor | None]:
    """Tops, gradients of the bottoms and of the params."""
    built = build_case(case)
    wanted = [place not in built.no_gradient_to for place in range(len(case.shapes))]
    bottoms = [torch.from_numpy(b).double() for b in case.bottoms()]
    bottoms = [
        (turned(b) if turn else b).requires_grad_(w) for b, w in zip(bottoms, wanted, strict=True)
    ]
    tops = built.forward(bottoms)
    diffs = weights(case, [tuple(t.shape) for t in tops])
    if turn:
        diffs = [None if d is None else turned(d) for d in diffs]
    gradients = built.backward(bottoms, tops, diffs, wanted)
    return [*(t.detach() for t in tops), *gradients, *(p.diff for p in built.params)]


@pytest.mark.parametrize("case", [c for c in CASES if c.shapes], ids=str)
def test_another_order_in_memory_changes_nothing(case: Case) -> None:
    for plain, other in zip(passes(case, False), passes(case, True), strict=True):
        assert (plain is None) == (other is None)
        if plain is not None and other is not None:
            torch.testing.assert_close(plain, other)


def test_what_convolution_and_pooling_return_keeps_the_channels_of_a_pixel_together() -> None:
    convolution = 'type: "Convolution" convolution_param { num_output: 4 kernel_size: 3 }'
    for channels in (1, 3):
        shape = (2, channels, 8, 8)
        (top,) = build(convolution, shape, dtype=torch.float32).forward([torch.ones(shape)])
        assert top.is_contiguous(memory_format=torch.channels_last)
    pooling = 'type: "Pooling" pooling_param { kernel_size: 2 }'
    (top,) = build(pooling, shape).forward([torch.ones(shape)])
    assert top.is_contiguous(memory_format=torch.channels_last)


def trained(file: Path) -> caffe.SGDSolver:
    """A solver after a step, whose net and test net have a convolution of many channels."""
    net = (
        'layer { name: "d" type: "DummyData" top: "d" dummy_data_param { '
        'shape { dim: 2 dim: 3 dim: 6 dim: 6 } data_filler { type: "gaussian" } } }\n'
        'layer { name: "c" type: "Convolution" bottom: "d" top: "c" convolution_param { '
        'num_output: 4 kernel_size: 3 weight_filler { type: "xavier" } } }\n'
        'layer { name: "l" type: "Reduction" bottom: "c" top: "l" loss_weight: 1 '
        "reduction_param { operation: SUMSQ } }\n"
    )
    (file / "net").write_text(net)
    (file / "solver").write_text(
        f'net: "{file}/net" base_lr: 0.001 momentum: 0.9 lr_policy: "fixed" random_seed: 3 '
        f'test_iter: 1 test_interval: 100 test_initialization: false snapshot_prefix: "{file}/s"'
    )
    solver = caffe.SGDSolver(str(file / "solver"))
    solver.step(1)
    return solver


def test_weights_gradients_and_momentum_stay_in_one_order_through_a_step(tmp_path: Path) -> None:
    solver = trained(tmp_path)
    weight = solver.net.engine.learnable[0]
    kept = weight.data.data_ptr()
    solver.step(1)
    assert weight.data.data_ptr() == kept
    for tensor in (weight.data, weight.diff, solver.engine.update.history[0]):
        assert tensor.is_contiguous(memory_format=torch.channels_last)
        assert not tensor.is_contiguous()


def test_a_script_has_weights_and_gradients_in_order_and_keeps_their_memory(tmp_path: Path) -> None:
    solver = trained(tmp_path)
    blob = solver.net.params["c"][0]
    weights, gradient = blob.data, blob.diff
    for array in (weights, gradient):
        assert array.shape == (4, 3, 3, 3)
        assert array.flags.c_contiguous
    weights.reshape(-1)[0] = 7  # a view, as of Caffe's memory
    other = solver.test_nets[0].params["c"][0].data
    assert other[0, 0, 0, 0] == 7
    before, had = weights.copy(), gradient.copy()
    solver.step(1)
    assert (weights != before).all()
    assert (gradient != had).any()
    np.testing.assert_array_equal(other, weights)
    np.testing.assert_allclose(before - weights, gradient, rtol=1e-4, atol=1e-6)


def test_a_script_that_looks_at_weights_does_not_change_what_they_become(tmp_path: Path) -> None:
    looking, plain = trained(tmp_path), trained(tmp_path)
    for blob in looking.net.params["c"]:
        assert blob.data.flags.c_contiguous
        assert blob.diff.flags.c_contiguous
    for solver in (looking, plain):
        solver.step(3)
    for mine, others in zip(looking.net.params["c"], plain.net.params["c"], strict=True):
        np.testing.assert_allclose(mine.data, others.data, rtol=1e-5, atol=1e-6)


def test_processes_exchange_elements_in_one_order_whoever_looks_at_them(tmp_path: Path) -> None:
    looking, plain = (trained(tmp_path).net.engine.learnable[0] for _ in range(2))
    assert looking.in_order().is_contiguous()
    assert looking.diff_in_order().is_contiguous()
    mine, others = (each.exchanged(each.diff) for each in (looking, plain))
    assert others.is_contiguous()
    assert torch.equal(mine.flatten(), others.flatten())
