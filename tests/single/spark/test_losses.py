"""Losses of several labels, with weights of labels and of samples."""

from __future__ import annotations

from typing import Any

import pytest

from tests import needs

torch = needs.package("torch")

from sirtaki.spark.torch.losses import alike, by_sample, losses_of, total_loss  # noqa: E402
from sirtaki.spark.torch.metrics import metrics_of  # noqa: E402

ONES, ZEROS = torch.ones(2, 1), torch.zeros(2, 1)


def test_a_loss_is_the_mean_over_labels_or_as_weighted() -> None:
    losses = losses_of(torch.nn.L1Loss(), 2)
    outputs, labels = [ONES, 3 * ONES], [ZEROS, ZEROS]
    assert float(total_loss(outputs, labels, losses, None, None)) == 2
    assert float(total_loss(outputs, labels, losses, [1, 0.5], None)) == 2.5


@pytest.mark.parametrize("loss", [torch.nn.MSELoss(), torch.nn.functional.mse_loss])
def test_weights_multiply_the_loss_of_each_sample(loss: object) -> None:
    outputs = [torch.tensor([[1.0], [3.0]])]
    weights = torch.tensor([2.0, 0.0])
    found = total_loss(outputs, [torch.zeros(2)], [by_sample(loss)], None, weights)
    assert float(found) == 1
    assert getattr(loss, "reduction", "mean") == "mean"


def test_a_loss_without_reduction_takes_no_weights() -> None:
    with pytest.raises(ValueError, match="no parameter 'reduction'"):
        by_sample(lambda output, label: (output - label).sum())


def test_labels_take_the_shape_of_outputs_with_as_many_numbers() -> None:
    assert alike(torch.zeros(2), ONES).shape == (2, 1)
    assert alike(torch.zeros(2, dtype=torch.int64), torch.zeros(2, 3)).shape == (2,)


def test_as_many_losses_as_labels_are_needed() -> None:
    assert len(losses_of(torch.nn.L1Loss(), 3)) == 3
    with pytest.raises(ValueError, match="2 losses were given for 3 label columns"):
        losses_of([torch.nn.L1Loss()] * 2, 3)


def test_metrics_are_functions_or_lists_of_them_for_each_label() -> None:
    def worst(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return (outputs - labels).abs().max()

    outputs = [torch.tensor([[1.0], [4.0]]), torch.tensor([[2.0], [2.0]])]
    labels = [torch.tensor([[0.0], [0.0]]), torch.tensor([[3.0], [3.0]])]

    def told(given: list[Any], names: list[str]) -> dict[str, float]:
        return {each.name: each.of(outputs, labels) for each in metrics_of(given, names)}

    assert told([worst, worst], ["a"]) == {"worst": 4.0, "worst_1": 4.0}
    assert told([[worst]], ["a"]) == {"worst": 4.0}
    assert told([[worst]], ["a", "b"]) == {"a_worst": 4.0, "b_worst": 1.0}
    assert told([[], [worst]], ["a", "b"]) == {"b_worst": 1.0}
    assert told([lambda o, _: len(o)], ["a", "b"]) == {"<lambda>": 2.0}
    assert metrics_of(None, ["a"]) == []
    with pytest.raises(ValueError, match="not both"):
        metrics_of([worst, [worst]], ["a"])
    with pytest.raises(ValueError, match="2 lists of functions were given for 3 label columns"):
        metrics_of([[worst], [worst]], ["a", "b", "c"])
