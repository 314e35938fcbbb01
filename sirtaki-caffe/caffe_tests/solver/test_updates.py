"""Updates of the six solver types against formulas written out in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from sirtaki_caffe.errors import CaffeError
from sirtaki_caffe.layers.base import Param
from sirtaki_caffe.proto.schema import SolverParameter
from sirtaki_caffe.solver.updates import Update, make_update

Array = np.ndarray[Any, np.dtype[np.float64]]
RATE = 0.1


def made(lines: list[str] | None = None, **given: Any) -> tuple[Update, list[Param]]:
    """An update of three params: usual, with other multipliers, and frozen."""
    random = np.random.default_rng(7)
    params = []
    for shape, lr_mult, decay_mult in (((3, 2), 1, 1), ((4,), 2, 0.5), ((2,), 0, 1)):
        param = Param(torch.from_numpy(random.normal(size=shape)))
        param.lr_mult, param.decay_mult = lr_mult, decay_mult
        params.append(param)
    log = (lambda source, text: None) if lines is None else (lambda s, text: lines.append(text))
    return make_update(SolverParameter(**given), params, log), params


def steps(update: Update, params: list[Param], count: int) -> list[Array]:
    """Run with gradients that differ each time; return them by step and param."""
    random = np.random.default_rng(8)
    given = []
    for i in range(count):
        gradients = [random.normal(size=tuple(p.data.shape)) for p in params]
        for param, gradient in zip(params, gradients, strict=True):
            param.diff = torch.from_numpy(gradient.copy())
        update.compute(RATE, i)
        update.subtract()
        given.append(gradients)
    return given


# Numbers that single precision, the fields' type, holds exactly.
Rule = Callable[[Array, list[Array], float, int], Array]


def sgd(g: Array, h: list[Array], r: float, t: int) -> Array:
    h[0] = 0.875 * h[0] + r * g
    return h[0]


def nesterov(g: Array, h: list[Array], r: float, t: int) -> Array:
    before = h[0]
    h[0] = 0.875 * h[0] + r * g
    return 1.875 * h[0] - 0.875 * before


def adagrad(g: Array, h: list[Array], r: float, t: int) -> Array:
    h[0] = h[0] + g * g
    return r * g / (np.sqrt(h[0]) + 0.125)


def rmsprop(g: Array, h: list[Array], r: float, t: int) -> Array:
    h[0] = 0.75 * h[0] + 0.25 * g * g
    return r * g / (np.sqrt(h[0]) + 0.125)


def adadelta(g: Array, h: list[Array], r: float, t: int) -> Array:
    h[0] = 0.875 * h[0] + 0.125 * g * g
    s = g * np.sqrt((h[1] + 0.125) / (h[0] + 0.125))
    h[1] = 0.875 * h[1] + 0.125 * s * s
    return r * s


def adam(g: Array, h: list[Array], r: float, t: int) -> Array:
    h[0] = 0.875 * h[0] + 0.125 * g
    h[1] = 0.9375 * h[1] + 0.0625 * g * g
    correction = np.sqrt(1 - 0.9375 ** (t + 1)) / (1 - 0.875 ** (t + 1))
    return r * correction * h[0] / (np.sqrt(h[1]) + 0.125)


RULES: dict[str, tuple[Rule, dict[str, Any], int]] = {
    "SGD": (sgd, {"momentum": 0.875}, 1),
    "Nesterov": (nesterov, {"momentum": 0.875}, 1),
    "AdaGrad": (adagrad, {"delta": 0.125}, 1),
    "RMSProp": (rmsprop, {"delta": 0.125, "rms_decay": 0.75}, 1),
    "AdaDelta": (adadelta, {"delta": 0.125, "momentum": 0.875}, 2),
    "Adam": (adam, {"delta": 0.125, "momentum": 0.875, "momentum2": 0.9375}, 2),
}


@pytest.mark.parametrize("kind", RULES)
@pytest.mark.parametrize("regularization", ["L1", "L2"])
def test_four_updates_follow_the_formula(kind: str, regularization: str) -> None:
    rule, given, histories = RULES[kind]
    update, params = made(
        type=kind, weight_decay=0.5, regularization_type=regularization, iter_size=2, **given
    )
    start = [p.data.numpy().copy() for p in params]
    gradients = steps(update, params, 4)
    for i, param in enumerate(params):
        w = start[i]
        history = [np.zeros_like(w) for _ in range(histories)]
        for t in range(4 if param.learns else 0):
            toward = np.sign(w) if regularization == "L1" else w
            g = gradients[t][i] / 2 + 0.5 * param.decay_mult * toward
            w = w - rule(g, history, RATE * param.lr_mult, t)
        # The fields of the message are of single precision.
        np.testing.assert_allclose(param.data.numpy(), w, rtol=1e-12)
        for k in range(histories):
            np.testing.assert_allclose(
                update.history[k * len(params) + i].numpy(), history[k], rtol=1e-12
            )


def test_the_gradient_becomes_what_was_subtracted() -> None:
    update, params = made(type="SGD", momentum=0.9)
    before = [p.data.clone() for p in params]
    steps(update, params, 1)
    for param, value in zip(params[:2], before, strict=False):
        torch.testing.assert_close(value - param.data, param.diff)


def test_a_gradient_that_nothing_was_added_to_is_zero() -> None:
    update, params = made(type="SGD", momentum=0.5)
    steps(update, params, 1)
    velocity = update.history[0].clone()
    before = params[0].data.clone()
    for param in params:
        param.diff = None
    update.compute(RATE, 1)
    update.subtract()
    torch.testing.assert_close(before - params[0].data, 0.5 * velocity)


def test_gradients_are_clipped_together_before_the_division_by_iter_size() -> None:
    lines: list[str] = []
    update, params = made(lines, type="SGD", clip_gradients=1.0, iter_size=4)
    start = [p.data.numpy().copy() for p in params]
    params[2].diff = None
    (gradients,) = steps(update, params, 1)
    norm = np.sqrt(sum((g**2).sum() for g in gradients[:2]))
    for param, before, gradient in zip(params[:2], start, gradients, strict=False):
        u = RATE * param.lr_mult * gradient / norm / 4
        np.testing.assert_allclose(param.data.numpy(), before - u, rtol=1e-12)
    assert lines == [
        f"Gradient clipping: scaling down gradients (L2 norm {norm:g} > 1) "
        f"by scale factor {1 / norm:g}"
    ]


def test_local_rates_scale_each_param_by_its_norms() -> None:
    update, params = made(
        type="SGD", weight_decay=0.5, local_lr_auto=True, local_gw_ratio=0.25, momentum=0.9
    )
    start = [p.data.numpy().copy() for p in params]
    (gradients,) = steps(update, params, 1)
    for i in range(2):
        w, g = start[i], gradients[i]
        size, steep = np.linalg.norm(w), np.linalg.norm(g)
        local = RATE * 0.25 * size / (steep + 0.5 * size)
        expected = w - local * (g + 0.5 * params[i].decay_mult * w)
        np.testing.assert_allclose(params[i].data.numpy(), expected, rtol=1e-12)


def test_a_param_of_zeros_has_the_usual_rate_among_local_ones() -> None:
    update, params = made(type="SGD", local_lr_auto=True)
    params[0].data.zero_()
    (gradients,) = steps(update, params, 1)
    np.testing.assert_allclose(params[0].data.numpy(), -RATE * gradients[0])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"type": "Momentum"}, "unknown solver type 'Momentum'"),
        ({"type": "AdaGrad", "momentum": 0.9}, "momentum: cannot be used with AdaGrad"),
        ({"type": "RMSProp", "momentum": 0.9}, "momentum: cannot be used with RMSProp"),
        ({"type": "RMSProp", "rms_decay": 1.0}, "rms_decay: 1 must be"),
        ({"regularization_type": "L3"}, "regularization_type: unknown type 'L3'"),
    ],
)
def test_fields_out_of_range_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(CaffeError, match=said):
        made(**given)
