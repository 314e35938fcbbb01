"""Losses and accuracy: their formulas, and what they are divided by."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from caffe_tests.layers.layer_runs import Array, build, numbers, run
from sirtaki_caffe.errors import LayerError
from sirtaki_caffe.layers.base import Layer, World
from sirtaki_caffe.proto.schema import TEST, TRAIN, BlobProto

SCORES = numbers(4, 3, 2).astype(np.float64)
LABELS = np.float64([[0, 2], [1, 1], [2, 0], [1, 2]])


def softmax(x: Array, axis: int = 1) -> Array:
    powers = np.exp(x - x.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


def log_losses(labels: Array = LABELS) -> Array:
    picked = np.take_along_axis(softmax(SCORES), labels.astype(int)[:, None], 1)
    return -np.log(picked[:, 0])


def gradients(built: Layer, *bottoms: Any, weight: float = 1.0) -> list[Array | None]:
    """Of the loss, by the layer."""
    blobs = [torch.tensor(b, dtype=torch.float64) for b in bottoms]
    wanted = [place not in built.no_gradient_to for place in range(len(blobs))]
    for blob, wants in zip(blobs, wanted, strict=True):
        blob.requires_grad_(wants)
    tops = built.forward(blobs)
    diffs = [torch.tensor(weight, dtype=torch.float64), *[None] * (len(tops) - 1)]
    found = built.backward(blobs, tops, diffs, wanted)
    return [None if g is None else g.numpy() for g in found]


def softmax_loss(fields: str = "", **options: Any) -> Layer:
    options.setdefault("tops", 1)
    text = f'type: "SoftmaxWithLoss" loss_param {{ {fields} }}'
    return build(text, SCORES.shape, LABELS.shape, **options)


@pytest.mark.parametrize(
    ("fields", "divisor"),
    [
        ("", 8),
        ("normalization: VALID", 8),
        ("normalization: FULL", 8),
        ("normalization: BATCH_SIZE", 4),
        ("normalization: NONE", 1),
        ("normalization: PRE_FIXED pre_fixed_normalizer: 16", 16),
        ("normalization: PRE_FIXED pre_fixed_normalizer: 0.5", 1),
        ("normalize: true", 8),
        ("normalize: false", 4),
        ("normalize: false normalization: FULL", 8),
    ],
)
def test_the_softmax_loss_is_divided_as_the_file_says(fields: str, divisor: float) -> None:
    (loss,) = run(softmax_loss(fields), SCORES, LABELS)
    np.testing.assert_allclose(loss, log_losses().sum() / divisor)


@pytest.mark.parametrize(
    ("fields", "divisor"), [("", 5), ("normalization: FULL", 8), ("normalization: BATCH_SIZE", 4)]
)
def test_ignored_labels_have_no_loss_and_no_gradient(fields: str, divisor: float) -> None:
    built = softmax_loss(f"ignore_label: 2 {fields}")
    counted = LABELS != 2
    (loss,) = run(built, SCORES, LABELS)
    np.testing.assert_allclose(loss, log_losses()[counted].sum() / divisor)
    gradient = gradients(built, SCORES, LABELS)[0]
    assert gradient is not None
    assert (gradient.transpose(0, 2, 1)[~counted] == 0).all()
    assert (gradient.transpose(0, 2, 1)[counted] != 0).all()


def test_an_ignored_label_need_not_name_a_class() -> None:
    labels = np.where(LABELS == 2, 255, LABELS)
    (loss,) = run(softmax_loss("ignore_label: 255"), SCORES, labels)
    np.testing.assert_allclose(loss, log_losses()[LABELS != 2].mean())


def test_a_batch_of_ignored_labels_has_no_loss() -> None:
    (loss,) = run(softmax_loss("ignore_label: 7"), SCORES, np.full((4, 2), 7.0))
    assert loss == 0


def test_a_second_top_has_the_probabilities() -> None:
    _, probabilities = run(softmax_loss(tops=2), SCORES, LABELS)
    np.testing.assert_allclose(probabilities, softmax(SCORES))


def test_the_fraction_of_a_label_is_dropped() -> None:
    (loss,) = run(softmax_loss(), SCORES, LABELS + 0.9)
    np.testing.assert_allclose(loss, log_losses().mean())


def test_a_probability_counts_as_the_least_float_at_least() -> None:
    built = build('type: "SoftmaxWithLoss"', (1, 2), (1,))
    (loss,) = run(built, [[0.0, 1000.0]], [0.0])
    np.testing.assert_allclose(loss, -np.log(np.finfo(np.float32).tiny))
    gradient = gradients(built, [[0.0, 1000.0]], [0.0])[0]
    np.testing.assert_allclose(gradient, [[-1, 1]])


def test_the_gradient_is_the_probability_less_the_target() -> None:
    target = np.eye(3)[LABELS.astype(int)].transpose(0, 2, 1)
    gradient = gradients(softmax_loss(), SCORES, LABELS, weight=3.0)[0]
    np.testing.assert_allclose(gradient, 3 * (softmax(SCORES) - target) / 8)


def test_smoothed_labels_change_the_gradient_alone() -> None:
    built = softmax_loss("label_smoothing: 0.3")
    np.testing.assert_allclose(run(built, SCORES, LABELS)[0], log_losses().mean())
    hot = np.eye(3)[LABELS.astype(int)].transpose(0, 2, 1)
    target = np.where(hot == 1, 0.7, 0.1)
    wanted = (softmax(SCORES) * 0.9 - target) / 8
    np.testing.assert_allclose(gradients(built, SCORES, LABELS)[0], wanted, rtol=1e-5)


def test_labels_are_not_smoothed_in_test() -> None:
    plain, smooth = softmax_loss(phase=TEST), softmax_loss("label_smoothing: 0.3", phase=TEST)
    np.testing.assert_array_equal(
        gradients(plain, SCORES, LABELS)[0], gradients(smooth, SCORES, LABELS)[0]
    )


def test_a_third_bottom_weighs_the_labels() -> None:
    built = build('type: "SoftmaxWithLoss"', SCORES.shape, LABELS.shape, LABELS.shape)
    weights = np.abs(numbers(4, 2)).astype(np.float64)
    (loss,) = run(built, SCORES, LABELS, weights)
    np.testing.assert_allclose(loss, (log_losses() * weights).sum() / weights.sum())
    target = np.eye(3)[LABELS.astype(int)].transpose(0, 2, 1)
    wanted = (softmax(SCORES) - target) * weights[:, None] / weights.sum()
    np.testing.assert_allclose(gradients(built, SCORES, LABELS, weights)[0], wanted, rtol=1e-6)


@pytest.mark.parametrize("label", [3, -1])
@pytest.mark.parametrize(
    "kind", ["SoftmaxWithLoss", "Accuracy", "MultinomialLogisticLoss", "HingeLoss"]
)
def test_a_label_that_names_no_class_is_an_error(kind: str, label: int) -> None:
    built = build(f'type: "{kind}"', (2, 3), (2,))
    with pytest.raises(LayerError, match="but it has 3 classes, 0 to 2"):
        built.forward([torch.rand(2, 3), torch.tensor([0.0, label])])


# ---- Several processes ----


def of_a_process(fields: str, scores: Array, labels: Array, mean: float | None) -> Array:
    """The gradient of one of two processes; `mean` is that of the labels that count."""

    def average(value: torch.Tensor, name: str) -> torch.Tensor:
        assert mean is not None
        assert float(value) == (labels != 2).sum()
        return torch.tensor(mean)

    world = World(rank=0, size=2, mean=average)
    text = f'type: "SoftmaxWithLoss" loss_param {{ {fields} }}'
    built = build(text, scores.shape, labels.shape, world=world)
    found = gradients(built, scores, labels)[0]
    assert found is not None
    return found


@pytest.mark.parametrize(
    "fields",
    [
        "",
        "ignore_label: 2",
        "ignore_label: 2 normalization: FULL",
        "normalization: BATCH_SIZE",
        "normalization: NONE",
    ],
)
def test_the_average_over_processes_is_the_gradient_of_the_whole_batch(fields: str) -> None:
    labels = np.float64([[2, 2], [2, 1], [0, 0], [1, 2]])
    whole = gradients(softmax_loss(fields), SCORES, labels)[0]
    assert whole is not None
    mean = (labels != 2).sum() / 2 if "ignore" in fields and "FULL" not in fields else None
    halves = [of_a_process(fields, SCORES[i], labels[i], mean) for i in (slice(2), slice(2, 4))]
    np.testing.assert_allclose(np.concatenate(halves) / 2, whole)


def test_in_test_a_process_divides_by_its_own_labels() -> None:
    def never(value: torch.Tensor, name: str) -> torch.Tensor:
        raise AssertionError

    built = softmax_loss("ignore_label: 2", phase=TEST, world=World(0, 2, never))
    (loss,) = run(built, SCORES, LABELS)
    np.testing.assert_allclose(loss, log_losses()[LABELS != 2].mean())


# ---- The others ----

A, B = numbers(3, 4, seed=1).astype(np.float64), numbers(3, 4, seed=2).astype(np.float64)
TARGETS = 1 / (1 + np.exp(-B))
OF_A = np.float64([2, 0, 3])


def smooth_l1(d: Array, sigma: float) -> Array:
    return np.where(np.abs(d) < 1 / sigma**2, 0.5 * (sigma * d) ** 2, np.abs(d) - 0.5 / sigma**2)


def cross_entropy(x: Array, t: Array) -> Array:
    s = 1 / (1 + np.exp(-x))
    return -(t * np.log(s) + (1 - t) * np.log(1 - s))


def hinge(power: int) -> float:
    sign = np.where(np.arange(4) == OF_A[:, None], -1, 1)
    return float((np.maximum(0, 1 + sign * A) ** power).sum() / 3)


def infogain(matrix: Array) -> float:
    rows = matrix[OF_A.astype(int)]
    return float(-(rows * np.log(softmax(A))).sum() / 3)


def contrastive(margin: float, legacy: bool) -> float:
    squares = ((A - B) ** 2).sum(1)
    apart = margin - squares if legacy else np.maximum(margin - np.sqrt(squares), 0) ** 2
    return float(np.where([1, 0, 0], squares, np.maximum(apart, 0)).sum() / 6)


SIMILAR = np.float64([1, 0, 0])
MATRIX = np.abs(numbers(4, 4)).astype(np.float64)
LOSSES: list[tuple[str, list[Array], Callable[[], float]]] = [
    ('type: "EuclideanLoss"', [A, B], lambda: float(((A - B) ** 2).sum() / 6)),
    ('type: "SigmoidCrossEntropyLoss"', [A, TARGETS], lambda: cross_entropy(A, TARGETS).sum() / 3),
    (
        'type: "SigmoidCrossEntropyLoss" loss_param { normalization: VALID ignore_label: 1 }',
        [A, (B > 0).astype(float)],
        lambda: float(cross_entropy(A, B > 0)[B <= 0].mean()),
    ),
    (
        'type: "SigmoidCrossEntropyLoss" loss_param { normalize: true }',
        [A, TARGETS],
        lambda: float(cross_entropy(A, TARGETS).mean()),
    ),
    ('type: "HingeLoss"', [A, OF_A], lambda: hinge(1)),
    ('type: "HingeLoss" hinge_loss_param { norm: L2 }', [A, OF_A], lambda: hinge(2)),
    (
        'type: "MultinomialLogisticLoss"',
        [softmax(A), OF_A],
        lambda: float(-np.log(softmax(A)[np.arange(3), OF_A.astype(int)]).mean()),
    ),
    ('type: "InfogainLoss"', [A, OF_A, MATRIX], lambda: infogain(MATRIX)),
    ('type: "ContrastiveLoss"', [A, B, SIMILAR], lambda: contrastive(1, False)),
    (
        'type: "ContrastiveLoss" contrastive_loss_param { margin: 6 }',
        [A, B, SIMILAR],
        lambda: contrastive(6, False),
    ),
    (
        'type: "ContrastiveLoss" contrastive_loss_param { margin: 9 legacy_version: true }',
        [A, B, SIMILAR],
        lambda: contrastive(9, True),
    ),
    ('type: "SmoothL1Loss"', [A, B], lambda: float(smooth_l1(A - B, 1).sum() / 3)),
    (
        'type: "SmoothL1Loss" smooth_l1_loss_param { sigma: 2 }',
        [A, B, TARGETS, A],
        lambda: float((A * smooth_l1(TARGETS * (A - B), 2)).sum() / 3),
    ),
    (
        'type: "SmoothL1LossOHEM" loss_param { normalization: PRE_FIXED pre_fixed_normalizer: 8 }',
        [A, B],
        lambda: float(smooth_l1(A - B, 1).sum() / 8),
    ),
]


@pytest.mark.parametrize(
    ("text", "bottoms", "formula"), LOSSES, ids=[text[:70] for text, *_ in LOSSES]
)
def test_a_loss_follows_its_formula(
    text: str, bottoms: list[Array], formula: Callable[[], float]
) -> None:
    built = build(text, *(b.shape for b in bottoms))
    np.testing.assert_allclose(run(built, *bottoms)[0], formula(), rtol=1e-6)


def test_the_matrix_of_an_infogain_loss_may_be_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "matrix.binaryproto"
    path.write_bytes(BlobProto(data=MATRIX.ravel()).SerializeToString())
    text = f'type: "InfogainLoss" infogain_loss_param {{ source: "{path}" }}'
    built = build(text, A.shape, OF_A.shape)
    np.testing.assert_allclose(run(built, A, OF_A)[0], infogain(MATRIX), rtol=1e-6)


@pytest.mark.parametrize("content", [None, b"\xff\xff", b""], ids=["missing", "foreign", "empty"])
def test_a_file_that_holds_no_such_matrix_is_an_error(
    tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "matrix.binaryproto"
    if content is not None:
        path.write_bytes(content)
    text = f'type: "InfogainLoss" infogain_loss_param {{ source: "{path}" }}'
    with pytest.raises(LayerError, match=r"layer 'tested' \(InfogainLoss\)"):
        build(text, A.shape, OF_A.shape)


def test_a_pair_is_similar_where_the_whole_part_of_its_number_is_not_zero() -> None:
    built = build('type: "ContrastiveLoss"', A.shape, B.shape, SIMILAR.shape)
    (loss,) = run(built, A, B, [1.5, 0.9, 0])
    np.testing.assert_allclose(loss, contrastive(1, False))


def test_losses_of_regions_come_one_by_one() -> None:
    built = build('type: "SoftmaxWithLossOHEM"', SCORES.shape, LABELS.shape, tops=3)
    loss, probabilities, each = run(built, SCORES, LABELS)
    np.testing.assert_allclose(each, log_losses())
    np.testing.assert_allclose(loss, each.mean())
    np.testing.assert_allclose(probabilities, softmax(SCORES))
    boxes = build('type: "SmoothL1LossOHEM"', (3, 4), (3, 4), tops=2)
    np.testing.assert_allclose(run(boxes, A, B)[1][:, 0], smooth_l1(A - B, 1).sum(1))


def test_hard_regions_keep_their_labels() -> None:
    text = 'type: "BoxAnnotatorOHEM" box_annotator_ohem_param { roi_per_img: 1 ignore_label: -1 }'
    built = build(text, (4, 5), (4,), (4,), (4, 2))
    regions = np.zeros((4, 5))
    regions[:, 0] = [0, 0, 1, 1]
    labels, weights = run(built, regions, [0.5, 0.7, 0.9, 0.1], [1, 2, 3, 4], np.ones((4, 2)))
    assert labels.tolist() == [-1, 2, 3, -1]
    assert weights[:, 0].tolist() == [0, 1, 1, 0]


# ---- Accuracy ----


def accuracy(fields: str, scores: Any, labels: Any, tops: int = 1) -> list[Array]:
    text = f'type: "Accuracy" accuracy_param {{ {fields} }}'
    return run(build(text, np.shape(scores), np.shape(labels), tops=tops), scores, labels)


TABLE = [[3.0, 1, 2], [1, 3, 2], [2, 1, 3], [1, 2, 3]]


@pytest.mark.parametrize(("best", "part"), [(1, 0.5), (2, 0.75), (3, 1.0)])
def test_accuracy_looks_at_the_best_classes(best: int, part: float) -> None:
    assert accuracy(f"top_k: {best}", TABLE, [0, 0, 0, 2])[0] == part


def test_a_class_of_the_same_score_counts_as_better() -> None:
    assert accuracy("", [[1.0, 1, 0]], [0])[0] == 0
    assert accuracy("top_k: 2", [[1.0, 1, 0]], [0])[0] == 1


def test_accuracy_leaves_out_ignored_labels() -> None:
    assert accuracy("ignore_label: 9", TABLE, [0, 9, 9, 0])[0] == 0.5
    assert accuracy("ignore_label: 9", TABLE, [9, 9, 9, 9])[0] == 0


def test_a_second_top_has_the_accuracy_of_each_class() -> None:
    _, parts = accuracy("", TABLE, [0, 0, 2, 2], tops=2)
    assert parts.tolist() == [0.5, 0, 1]


def test_the_classes_may_be_on_another_axis() -> None:
    scores = np.moveaxis(np.array(TABLE).reshape(2, 2, 3), 2, 0)
    assert accuracy("axis: 0", scores, [[0, 0], [0, 2]])[0] == 0.5


def test_accuracy_is_no_part_of_the_loss_and_has_no_gradient() -> None:
    built = build('type: "Accuracy"', (4, 3), (4,), phase=TRAIN)
    assert not built.is_loss
    assert built.no_gradient_to == (0, 1)
