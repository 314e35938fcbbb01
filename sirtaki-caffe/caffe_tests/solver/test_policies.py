"""Learning rates, iteration by iteration."""

from __future__ import annotations

import math
from typing import Any

import pytest

from sirtaki_caffe.errors import CaffeError
from sirtaki_caffe.proto.schema import SolverParameter
from sirtaki_caffe.solver.policies import Policy


def policy(**given: Any) -> tuple[Policy, list[str]]:
    """A policy, and the lines that it writes."""
    lines: list[str] = []
    fields: dict[str, Any] = {"base_lr": 0.5, "max_iter": 100, **given}
    return Policy(SolverParameter(**fields), lambda source, text: lines.append(text)), lines


def rates(iterations: list[int], **given: Any) -> list[float]:
    made, _ = policy(**given)
    made.check()
    return [made.rate(i) for i in iterations]


@pytest.mark.parametrize(
    ("given", "iterations", "expected"),
    [
        ({"lr_policy": "fixed"}, [0, 99], [0.5, 0.5]),
        (
            {"lr_policy": "step", "gamma": 0.5, "stepsize": 10},
            [0, 9, 10, 19, 20],
            [0.5, 0.5, 0.25, 0.25, 0.125],
        ),
        ({"lr_policy": "exp", "gamma": 0.5}, [0, 1, 3], [0.5, 0.25, 0.0625]),
        (
            {"lr_policy": "inv", "gamma": 0.5, "power": 2},
            [0, 2, 6],
            [0.5, 0.125, 0.03125],
        ),
        (
            {"lr_policy": "multistep", "gamma": 0.5, "stepvalue": [2, 4]},
            [0, 1, 2, 3, 4, 5],
            [0.5, 0.5, 0.25, 0.25, 0.125, 0.125],
        ),
        # At most one step a call, as Caffe's counter.
        (
            {"lr_policy": "multistep", "gamma": 0.5, "stepvalue": [2, 2, 2]},
            [1, 2, 3, 4, 5],
            [0.5, 0.25, 0.125, 0.0625, 0.0625],
        ),
        ({"lr_policy": "poly", "power": 2}, [0, 50, 100], [0.5, 0.125, 0.0]),
        (
            {"lr_policy": "sigmoid", "gamma": -0.5, "stepsize": 10},
            [10, 12, 100000],
            [0.25, 0.5 / (1 + math.e), 0.0],
        ),
        (
            {"lr_policy": "multifixed", "stagelr": [3, 2, 1], "stageiter": [5, 10, 20]},
            [0, 5, 6, 10, 11, 20, 21],
            [3, 3, 2, 2, 1, 1, 1],
        ),
        (
            {
                "lr_policy": "step",
                "gamma": 0.5,
                "stepsize": 6,
                "warmup_iter": 4,
                "warmup_start_lr": 0.25,
            },
            [0, 1, 2, 3, 4, 5, 6],
            [0.25, 0.3125, 0.375, 0.4375, 0.5, 0.5, 0.25],
        ),
    ],
    ids=lambda value: value["lr_policy"] if isinstance(value, dict) else "",
)
def test_the_rate_follows_the_policy(
    given: dict[str, Any], iterations: list[int], expected: list[float]
) -> None:
    assert rates(iterations, **given) == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_the_rate_of_lenet_after_a_hundred_iterations_is_shown_as_in_the_published_log() -> None:
    (rate,) = rates([100], base_lr=0.01, lr_policy="inv", gamma=0.0001, power=0.75)
    assert f"{rate:g}" == "0.00992565"


def test_a_plateau_takes_a_step_when_the_loss_has_found_no_new_minimum_for_so_long() -> None:
    made, lines = policy(lr_policy="plateau", gamma=0.5, plateau_winsize=[2, 3])
    losses = [5.0, 4.0, 4.0, 4.0, 3.0, 3.0, 3.0, 3.0, 3.0]
    found = [made.rate(i, loss) for i, loss in enumerate(losses)]
    assert found == [0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.25, 0.125, 0.125]
    assert lines == [
        "Plateau Status: Iteration 3, step = 1",
        "Plateau Status: Iteration 7, step = 2",
    ]
    assert (made.minimum_loss, made.iter_last_event) == (3.0, 7)


def test_a_step_of_multistep_is_written_down() -> None:
    made, lines = policy(lr_policy="multistep", gamma=0.5, stepvalue=[2])
    for i in range(4):
        made.rate(i)
    assert lines == ["MultiStep Status: Iteration 2, step = 1"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "lr_policy: unknown learning rate policy ''"),
        ({"lr_policy": "linear"}, "lr_policy: unknown learning rate policy 'linear'"),
        ({"lr_policy": "step"}, "stepsize must be above 0"),
        ({"lr_policy": "poly", "max_iter": 0}, "max_iter must be above 0"),
        ({"lr_policy": "multifixed", "stagelr": [1]}, "stagelr and stageiter"),
        ({"lr_policy": "fixed", "warmup_iter": -1}, "warmup_iter: -1 is below 0"),
    ],
)
def test_a_policy_that_cannot_be_followed_is_refused(given: dict[str, Any], said: str) -> None:
    made, _ = policy(**given)
    with pytest.raises(CaffeError, match=said.replace("(", r"\(")):
        made.check()


def test_a_rate_beyond_all_numbers_is_refused() -> None:
    made, _ = policy(lr_policy="exp", gamma=1e30)
    with pytest.raises(CaffeError, match="there is no rate at iteration 100"):
        made.rate(100)
