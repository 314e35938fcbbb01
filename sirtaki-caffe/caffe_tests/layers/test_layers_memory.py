"""Layers do not depend on the order in which their bottoms and gradients lie in memory."""

from __future__ import annotations

import pytest
import torch

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
