"""Priors, codes, suppression and Normalize, against numbers found by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from caffe_tests.layers.layer_runs import build, run, set_params
from sirtaki_caffe.errors import LayerError
from sirtaki_caffe.layers.ssd import boxes
from sirtaki_caffe.layers.ssd.boxes import CENTER_SIZE, CORNER, CORNER_SIZE

STEPPED = "min_size: 30 max_size: 60 aspect_ratio: 2 offset: 0.5 step: 8"
PRIOR = (0.2, 0.3, 0.5, 0.7)
VARIANCE = torch.tensor([0.1, 0.1, 0.2, 0.2], dtype=torch.float64)


def priors(fields: str, feature: tuple[int, int], image: tuple[int, int]) -> np.ndarray:
    shapes = [(1, 2, *feature), (1, 3, *image)]
    built = build(f'type: "PriorBox" prior_box_param {{ {fields} }}', *shapes)
    return run(built, *(np.zeros(shape) for shape in shapes))[0].reshape(2, -1, 4)


@pytest.mark.parametrize(
    ("fields", "feature", "image", "count", "expected"),
    [
        (
            "min_size: 30 max_size: 60 aspect_ratio: 2",
            (2, 3),
            (200, 300),
            24,
            {
                0: (0.116667, 0.175, 0.216667, 0.325),
                1: (0.095956, 0.143934, 0.237377, 0.356066),
                23: (0.797978, 0.643934, 0.868689, 0.856066),
            },
        ),
        (
            STEPPED,
            (38, 38),
            (300, 300),
            5776,
            {
                0: (-0.036667, -0.036667, 0.063333, 0.063333),
                5775: (0.964645, 0.929289, 1.035355, 1.070711),
            },
        ),
        (
            "min_size: 264.9 max_size: 315.2 aspect_ratio: [2, 3, 0.5] step: 300",
            (1, 1),
            (300, 300),
            6,
            {
                0: (0.06, 0.06, 0.94, 0.94),
                2: (-0.122254, 0.188873, 1.122254, 0.811127),
                4: (-0.262102, 0.245966, 1.262102, 0.754034),
            },
        ),
    ],
)
def test_priors_are_at_every_place(
    fields: str,
    feature: tuple[int, int],
    image: tuple[int, int],
    count: int,
    expected: dict[int, tuple[float, ...]],
) -> None:
    found, variances = priors(fields, feature, image)
    assert len(found) == count
    for place, corners in expected.items():
        np.testing.assert_allclose(found[place], corners, atol=1e-6)
    np.testing.assert_allclose(variances, 0.1)


def test_priors_are_clipped_and_have_four_variances() -> None:
    found, variances = priors(
        f"{STEPPED} clip: true variance: [0.1, 0.1, 0.2, 0.3]", (2, 2), (300, 300)
    )
    assert found.min() == 0
    np.testing.assert_allclose(variances, np.broadcast_to([0.1, 0.1, 0.2, 0.3], (16, 4)))


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ("", "min_size must be given"),
        ("min_size: 3 max_size: 4 max_size: 5", "as many max_size as min_size"),
        ("min_size: 3 max_size: 3", "max_size 3 must be above 3"),
        ("min_size: 3 variance: [1, 2]", "0, 1 or 4 times"),
        ("min_size: 3 variance: 0", "0, 1 or 4 times, above 0"),
        ("min_size: 3 img_size: 3 img_h: 3", "either img_size, or img_h and img_w"),
        ("min_size: 3 step_h: 3", "step_h and step_w, or step, must be positive"),
        ("min_size: 3 aspect_ratio: 0", "aspect_ratio must be positive"),
    ],
)
def test_fields_of_priors_that_make_no_sense_are_named(fields: str, why: str) -> None:
    with pytest.raises(LayerError, match=why):
        priors(fields, (2, 2), (10, 10))


@pytest.mark.parametrize(
    ("code", "encoded", "decoded", "decoded_without"),
    [
        (CORNER, (0.5, -1, 0.75, 0.5), (0.3, 0.1, 0.6, 0.6), (1.2, -1.7, 1, 0.2)),
        (
            CENTER_SIZE,
            (3.333333, 0, 1.43841, 2.027326),
            (0.214224, 0.239033, 0.545776, 0.600967),
            (0.402692, -0.421306, 0.897308, -0.178694),
        ),
        (
            CORNER_SIZE,
            (1.666667, -2.5, 2.5, 1.25),
            (0.23, 0.22, 0.53, 0.66),
            (0.5, -0.5, 0.65, 0.5),
        ),
    ],
)
def test_boxes_are_coded(
    code: int,
    encoded: tuple[float, ...],
    decoded: tuple[float, ...],
    decoded_without: tuple[float, ...],
) -> None:
    prior, box, said = (
        torch.tensor([each], dtype=torch.float64)
        for each in (PRIOR, (0.25, 0.2, 0.65, 0.8), (1, -2, 0.5, -0.5))
    )
    np.testing.assert_allclose((boxes.encode(code, prior, box) / VARIANCE)[0], encoded, atol=1e-6)
    np.testing.assert_allclose(boxes.decode(code, prior, said * VARIANCE)[0], decoded, atol=1e-6)
    np.testing.assert_allclose(boxes.decode(code, prior, said)[0], decoded_without, atol=1e-6)


NEAR = torch.tensor(
    [
        (0.1, 0.1, 0.4, 0.4),
        (0.12, 0.1, 0.42, 0.4),
        (0.2, 0.1, 0.5, 0.4),
        (0.6, 0.6, 0.9, 0.9),
        (0.6, 0.6, 0.9, 0.85),
        (0.25, 0.1, 0.55, 0.4),
    ],
    dtype=torch.float64,
)


@pytest.mark.parametrize(
    ("least", "threshold", "top_k", "eta", "kept"),
    [
        (0.05, 0.45, -1, 1, [0, 5, 3]),
        (0.05, 0.45, 3, 1, [0, 5]),
        (0, 0.88, -1, 1, [0, 1, 5, 2, 3, 4]),
        (0, 0.88, -1, 0.95, [0, 5, 2, 3]),
    ],
)
def test_boxes_near_better_ones_go(
    least: float, threshold: float, top_k: int, eta: float, kept: list[int]
) -> None:
    scores = torch.tensor([0.9, 0.8, 0.7, 0.6, 0.01, 0.75])
    places = (scores > least).nonzero()[:, 0]
    found = boxes.kept_by_nms(NEAR[places], scores[places], threshold, top_k, eta)
    assert places[found].tolist() == kept


def test_overlaps_in_pixels_count_the_last_one_and_one_between_boxes_apart() -> None:
    a = torch.tensor([[0.0, 0, 9, 9]])
    b = torch.tensor([[0.0, 0, 4, 9], [20.0, 20, 29, 29]])
    np.testing.assert_allclose(boxes.overlaps(a, b, pixels=True)[0], [0.5, 1 / 199])
    np.testing.assert_allclose(boxes.overlaps(a, b)[0], [36 / 81, 0], rtol=1e-6)


def test_the_gradient_of_normalize_leaves_the_scales_out_of_its_sum_as_caffe_does() -> None:
    built = build(
        'type: "Normalize" norm_param { across_spatial: false channel_shared: false }', (1, 2, 1, 1)
    )
    set_params(built, np.array([20.0, 10.0]))
    x = torch.tensor([3.0, 4], dtype=torch.float64).reshape(1, 2, 1, 1).requires_grad_()
    (y,) = built.forward([x])
    diff = torch.tensor([1.0, 2], dtype=torch.float64).reshape(1, 2, 1, 1)
    (gradient,) = built.backward([x], [y], [diff], [True])
    np.testing.assert_allclose(y.detach().flatten(), [12, 8], rtol=1e-9)
    assert gradient is not None
    assert built.params[0].diff is not None
    np.testing.assert_allclose(built.params[0].diff, [0.6, 1.6], rtol=1e-9)
    np.testing.assert_allclose(gradient.flatten(), [-1.28, 0.48], rtol=1e-9)
