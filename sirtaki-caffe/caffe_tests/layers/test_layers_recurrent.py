"""LSTM and RNN against loops in NumPy, and their memory."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from caffe_tests.layers.layer_runs import Array, Case, build_case, numbers, run
from sirtaki_caffe.layers.base import Layer

STEPS, SEQUENCES, INPUTS, OUTPUTS = 4, 3, 5, 2
X = numbers(STEPS, SEQUENCES, INPUTS).astype(np.float64)
CONT = np.float64([[0, 0, 0], [1, 1, 0], [1, 0, 1], [1, 1, 1]])
GOING_ON = np.ones((STEPS, SEQUENCES))
STATIC = numbers(SEQUENCES, 4, seed=8).astype(np.float64)
SHAPES = [X.shape, CONT.shape]


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def lstm(
    x: Array, cont: Array, params: list[Array], state: tuple[Array, Array], static: Array | None
) -> tuple[Array, Array, Array]:
    """All outputs, and the last h and c."""
    of_x, bias, *rest = params
    of_h = rest[-1]
    h, c = state
    outputs = []
    for t in range(len(x)):
        gates = x[t] @ of_x.T + bias + (cont[t][:, None] * h) @ of_h.T
        if static is not None:
            gates = gates + static @ rest[0].T
        i, f, o, g = np.split(gates, 4, axis=1)
        c = cont[t][:, None] * sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        outputs.append(h)
    return np.stack(outputs), h, c


def rnn(
    x: Array, cont: Array, params: list[Array], h: Array, static: Array | None
) -> tuple[Array, Array]:
    """All outputs, and the last h."""
    of_x, bias, *rest = params
    of_h, of_output, output_bias = rest[-3:]
    outputs = []
    for t in range(len(x)):
        sums = x[t] @ of_x.T + bias + (cont[t][:, None] * h) @ of_h.T
        if static is not None:
            sums = sums + static @ rest[0].T
        h = np.tanh(sums)
        outputs.append(np.tanh(h @ of_output.T + output_bias))
    return np.stack(outputs), h


def params(built: Layer) -> list[Array]:
    return [p.data.detach().numpy() for p in built.params]


def zeros() -> Array:
    return np.zeros((SEQUENCES, OUTPUTS))


def layer(kind: str, *more: tuple[int, ...], fields: str = "", tops: int = 1) -> Layer:
    return build_case(Case(kind, [*SHAPES, *more], f"num_output: {OUTPUTS} {fields}", tops=tops))


def test_the_blobs_of_an_lstm_are_in_caffes_order() -> None:
    built = layer("LSTM", STATIC.shape)
    shapes = [tuple(p.data.shape) for p in built.params]
    assert shapes == [(8, INPUTS), (8,), (8, 4), (8, OUTPUTS)]


def test_the_blobs_of_an_rnn_are_in_caffes_order() -> None:
    built = layer("RNN", STATIC.shape)
    shapes = [tuple(p.data.shape) for p in built.params]
    assert shapes == [(2, INPUTS), (2,), (2, 4), (2, 2), (2, 2), (2,)]


@pytest.mark.parametrize("static", [None, STATIC], ids=["x", "x and x_static"])
def test_an_lstm_follows_its_formula(static: Array | None) -> None:
    more = [] if static is None else [static]
    built = layer("LSTM", *(m.shape for m in more))
    expected = lstm(X, CONT, params(built), (zeros(), zeros()), static)[0]
    np.testing.assert_allclose(run(built, X, CONT, *more)[0], expected, rtol=1e-12)


@pytest.mark.parametrize("static", [None, STATIC], ids=["x", "x and x_static"])
def test_an_rnn_follows_its_formula(static: Array | None) -> None:
    more = [] if static is None else [static]
    built = layer("RNN", *(m.shape for m in more))
    expected = rnn(X, CONT, params(built), zeros(), static)[0]
    np.testing.assert_allclose(run(built, X, CONT, *more)[0], expected, rtol=1e-12)


def test_the_state_goes_on_in_the_next_batch() -> None:
    long_lstm, long_rnn = layer("LSTM"), layer("RNN")
    x, cont = np.concatenate([X, 2 * X]), np.concatenate([CONT, GOING_ON])
    for built, whole in (
        (long_lstm, lstm(x, cont, params(long_lstm), (zeros(), zeros()), None)[0]),
        (long_rnn, rnn(x, cont, params(long_rnn), zeros(), None)[0]),
    ):
        np.testing.assert_allclose(run(built, X, CONT)[0], whole[:STEPS], rtol=1e-12)
        np.testing.assert_allclose(run(built, 2 * X, GOING_ON)[0], whole[STEPS:], rtol=1e-12)


def test_working_out_shapes_leaves_the_state_alone() -> None:
    built = layer("LSTM")
    run(built, X, CONT)
    before = [kept.clone() for kept in built._state]
    built.shapes(SHAPES)
    assert all(torch.equal(a, b) for a, b in zip(before, built._state, strict=True))


def test_no_gradient_goes_to_an_earlier_batch() -> None:
    built = layer("LSTM")
    for _ in range(2):
        x = torch.from_numpy(X.copy()).requires_grad_()
        tops = built.forward([x, torch.from_numpy(GOING_ON)])
        gradients = built.backward([x], tops, [torch.ones_like(tops[0])], [True])
        assert gradients[0] is not None


def test_another_number_of_sequences_starts_with_zeros() -> None:
    built = layer("LSTM")
    run(built, X, CONT)
    x, cont = X[:, :2], GOING_ON[:, :2]
    start = (np.zeros((2, OUTPUTS)), np.zeros((2, OUTPUTS)))
    np.testing.assert_allclose(run(built, x, cont)[0], lstm(x, cont, params(built), start, None)[0])


def test_an_exposed_state_comes_in_and_goes_out() -> None:
    state = (1, SEQUENCES, OUTPUTS)
    h, c = numbers(*state, seed=3).astype(np.float64), numbers(*state, seed=4).astype(np.float64)
    built = layer("LSTM", state, state, fields="expose_hidden: true", tops=3)
    expected = lstm(X, GOING_ON, params(built), (h[0], c[0]), None)
    for _ in range(2):  # nothing is kept
        tops = run(built, X, GOING_ON, h, c)
        np.testing.assert_allclose(tops[0], expected[0], rtol=1e-12)
        np.testing.assert_allclose(tops[1][0], expected[1], rtol=1e-12)
        np.testing.assert_allclose(tops[2][0], expected[2], rtol=1e-12)
    single = layer("RNN", state, fields="expose_hidden: true", tops=2)
    tops = run(single, X, GOING_ON, h)
    for top, wanted in zip(tops, rnn(X, GOING_ON, params(single), h[0], None), strict=True):
        np.testing.assert_allclose(top if top.ndim == wanted.ndim else top[0], wanted, rtol=1e-12)


def test_one_step_of_an_lstm() -> None:
    built = build_case(Case("LSTMUnit", [(1, 3, 2), (1, 3, 8), (1, 3)]))
    c, gates = numbers(1, 3, 2).astype(np.float64), numbers(1, 3, 8, seed=9).astype(np.float64)
    cont = np.float64([[1, 0, 1]])
    i, f, o, g = np.split(gates, 4, axis=2)
    wanted = cont[..., None] * sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    found = run(built, c, gates, cont)
    np.testing.assert_allclose(found[0], wanted, rtol=1e-12)
    np.testing.assert_allclose(found[1], sigmoid(o) * np.tanh(wanted), rtol=1e-12)
