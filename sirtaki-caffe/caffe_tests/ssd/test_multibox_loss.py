"""MultiBoxLoss, against numbers found by hand, alone and among processes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from caffe_tests.layers.layer_runs import build
from caffe_tests.net.test_net_processes import Processes
from caffe_tests.ssd.examples import (
    BOXES,
    PRIORS,
    conf_blob,
    label_blob,
    loc_blob,
    prior_blob,
)
from sirtaki_caffe.errors import LayerError
from sirtaki_caffe.layers.base import World
from sirtaki_caffe.layers.ssd.multibox_loss import match

FIELDS = "num_classes: 3 code_type: CENTER_SIZE"


def blobs(*boxes: list[tuple[float, ...]]) -> list[torch.Tensor]:
    rows = [label_blob(each, image) for image, each in enumerate(boxes)]
    label = torch.cat(rows, 2)
    return [loc_blob(len(boxes)), conf_blob(len(boxes)), prior_blob(), label]


def loss_of(
    given: list[torch.Tensor], fields: str = "", more: str = "", world: World | None = None
) -> tuple[float, np.ndarray, np.ndarray]:
    """The loss, and the gradients of locations and scores, by image and prior."""
    text = f'type: "MultiBoxLoss" multibox_loss_param {{ {FIELDS} {fields} }} {more}'
    built = build(text, *(tuple(b.shape) for b in given), world=world or World())
    leaves = [b.clone().requires_grad_(place < 2) for place, b in enumerate(given)]
    (loss,) = built.forward(leaves)
    one = torch.ones((), dtype=torch.float64)
    gradients = built.backward(leaves, [loss], [one], [True, True, False, False])
    images = len(given[0])
    loc, conf = (
        g.numpy() if g is not None else np.zeros(b.shape)
        for g, b in zip(gradients, given[:2], strict=False)
    )
    return float(loss.detach()), loc.reshape(images, -1, 4), conf.reshape(images, -1, 3)


@pytest.mark.parametrize(
    ("threshold", "inside", "expected"),
    [
        (None, False, [1, 0, -1, 2, -1, -1, -1]),
        (0.5, False, [1, 0, -1, 2, -1, -1, 1]),
        (0.5, True, [1, 0, -1, 2, -1, -2, 1]),
    ],
)
def test_each_box_has_a_prior_of_its_own(
    threshold: float | None, inside: bool, expected: list[int]
) -> None:
    boxes = torch.tensor([box[1:] for box in BOXES], dtype=torch.float64)
    found, most = match(torch.tensor(PRIORS, dtype=torch.float64), boxes, threshold, inside)
    assert found.tolist() == expected
    np.testing.assert_allclose(most, [0.875, 0.7477, 0.0769, 0.6, 0, 0, 0.75], atol=1e-4)


@pytest.mark.parametrize(
    ("fields", "more", "expected"),
    [
        ("", "", 3.255647),
        ("neg_pos_ratio: 0.5", "", 3.231916),
        ("neg_overlap: 0.05", "", 3.035622),
        ("neg_pos_ratio: 0.5", "loss_param { normalization: FULL }", 1.846809),
        ("neg_pos_ratio: 0.5", "loss_param { normalization: BATCH_SIZE }", 12.927664),
        ("neg_pos_ratio: 0.5", "loss_param { normalization: NONE }", 12.927664),
        ("neg_pos_ratio: 0.5", "loss_param { normalize: false }", 12.927664),
        ("neg_pos_ratio: 0.5", "propagate_down: false propagate_down: true", 8.656146 / 4),
        ("mining_type: NONE", "", (4.271517 + 8.751069) / 4),
        ("neg_pos_ratio: 0.5 loc_weight: 2", "", (2 * 4.271517 + 8.656146) / 4),
    ],
)
def test_the_loss_is_that_of_the_example(fields: str, more: str, expected: float) -> None:
    assert loss_of(blobs(BOXES), fields, more)[0] == pytest.approx(expected, abs=1e-6)


def test_hard_examples_are_chosen_among_all_priors() -> None:
    """Of scores' and locations' losses together those of priors 1 and 6 are the greatest."""
    loss, _, conf = loss_of(blobs(BOXES), "mining_type: HARD_EXAMPLE sample_size: 2")
    assert np.flatnonzero(conf[0].any(1)).tolist() == [1, 6]
    said = np.array([0.1, -0.1, 0.2, -0.2])
    wanted = np.array([(-0.75, -0.75, 0, 0), (-0.833333, 0.714286, 0.770753, 0.667657)])
    off = np.abs(said - wanted)
    of_boxes = np.where(off < 1, off**2 / 2, off - 0.5).sum()
    assert loss == pytest.approx((of_boxes + 3.169846 + 1.551445) / 2, abs=1e-5)


def test_gradients_are_those_of_the_example() -> None:
    _, loc, conf = loss_of(blobs(BOXES), "neg_pos_ratio: 0.5")
    np.testing.assert_allclose(loc[0, 0], [-0.13125, -0.025, 0.216914, -0.05], atol=1e-6)
    np.testing.assert_allclose(loc[0, 3], [0.025, 0.25, 0.25, -0.05], atol=1e-6)
    np.testing.assert_allclose(conf[0, 0], [0.022508, 0.16631, -0.188818], atol=1e-6)
    np.testing.assert_allclose(conf[0, 4], [-0.188818, 0.16631, 0.022508], atol=1e-6)
    assert not conf[0, 5].any()


def test_images_without_boxes_learn_nothing_where_negatives_are_chosen() -> None:
    for fields in ("", "mining_type: HARD_EXAMPLE"):
        loss, loc, conf = loss_of(blobs([], []), fields)
        assert loss == 0
        assert not loc.any()
        assert not conf.any()
    scores = conf_blob().reshape(-1, 3)
    expected = 2 * float(torch.nn.functional.cross_entropy(scores, torch.zeros(7).long()) * 7)
    assert loss_of(blobs([], []), "mining_type: NONE")[0] == pytest.approx(expected)


def test_difficult_boxes_can_be_left_out() -> None:
    given = blobs(BOXES)
    given[3][0, 0, 1:, 7] = 1
    loss, _, _ = loss_of(given, "use_difficult_gt: false")
    assert loss == pytest.approx(loss_of(blobs(BOXES[:1]))[0], rel=1e-12)
    assert loss != pytest.approx(loss_of(given)[0])


def test_logistic_scores_have_a_place_for_the_background() -> None:
    loss, _, _ = loss_of(blobs(BOXES), "conf_loss_type: LOGISTIC mining_type: NONE")
    scores = conf_blob().reshape(-1, 3)
    wanted = torch.nn.functional.one_hot(torch.tensor([2, 1, 0, 2, 0, 0, 2]), 3).double()
    each = torch.nn.functional.binary_cross_entropy_with_logits(scores, wanted, reduction="sum")
    assert loss == pytest.approx((4.271517 + float(each)) / 4, abs=1e-6)


FOUR = (BOXES, [], BOXES[1:], BOXES[:1])


@pytest.mark.parametrize("fields", ["", "mining_type: HARD_EXAMPLE sample_size: 3"])
@pytest.mark.parametrize(
    ("mode", "split"),
    [
        *((mode, (2, 2)) for mode in ("VALID", "FULL", "BATCH_SIZE", "NONE")),
        ("VALID", (1, 3)),  # only matches are counted
    ],
)
def test_processes_together_learn_as_one_with_all_images(
    mode: str, fields: str, split: tuple[int, int]
) -> None:
    more = f"loss_param {{ normalization: {mode} }}"
    loss, loc, conf = loss_of(blobs(*FOUR), fields, more)
    processes = Processes(2)
    parts = (FOUR[: split[0]], FOUR[split[0] :])
    found: list[tuple[float, np.ndarray, np.ndarray]] = [(0.0, loc, conf)] * 2

    def work(rank: int) -> None:
        found[rank] = loss_of(blobs(*parts[rank]), fields, more, processes.world(rank))

    processes.run(work)
    assert sum(each[0] for each in found) / 2 == pytest.approx(loss, rel=1e-12)
    for place, whole in ((1, loc), (2, conf)):
        together = np.concatenate([each[place] for each in found]) / 2
        np.testing.assert_allclose(together, whole, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(
    ("boxes", "why"),
    [
        ([(3, 0, 0, 1, 1)], "image 0 has the label 3, but num_classes is 3"),
        ([(0, 0, 0, 1, 1)], "the label 0 of the background"),
        ([(1, 0.5, 0, 0.5, 1)], "box 0 of image 0 of the batch.*has no area"),
    ],
)
def test_boxes_that_cannot_be_learnt_are_named(boxes: list[tuple[float, ...]], why: str) -> None:
    with pytest.raises(LayerError, match=why):
        loss_of(blobs(boxes))


@pytest.mark.parametrize(
    ("place", "shape", "why"),
    [
        (0, (1, 20), r"7 \* 4 locations an image for 7 priors"),
        (1, (1, 28), r"7 \* 3 scores for 3 classes an image"),
        (2, (1, 1, 28), r"must be priors \(1, 2, 4 \* priors\)"),
        (3, (1, 1, 3, 5), r"AnnotatedData with records of type BBOX"),
    ],
)
def test_blobs_that_disagree_are_named(place: int, shape: tuple[int, ...], why: str) -> None:
    given = blobs(BOXES)
    given[place] = torch.zeros(shape, dtype=torch.float64)
    with pytest.raises(LayerError, match=why):
        loss_of(given)


@pytest.mark.parametrize(
    ("fields", "more", "why"),
    [
        ("do_neg_mining: false", "", "contradicts mining_type"),
        ("share_location: false", "", "mining_type must be NONE"),
        ("", "propagate_down: [true, true, false, true]", "must be false for its priors"),
    ],
)
def test_fields_that_contradict_each_other_are_named(fields: str, more: str, why: str) -> None:
    with pytest.raises(LayerError, match=why):
        loss_of(blobs(BOXES), fields, more)
