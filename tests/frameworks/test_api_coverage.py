"""Names of Horovod for TensorFlow and Keras are there, with their parameters and a test."""

from __future__ import annotations

import importlib
import inspect
import re

import pytest

from tests.frameworks.api_names import GROUPS
from tests.reference import gaps
from tests.single.repository.api_names import Group, name_of
from tests.single.repository.test_api_coverage import (
    ROOT,
    actual_parameters,
    expected_parameters,
    resolve,
)

NAMES = [(group, line) for group in GROUPS for line in group.lines()]
IDS = [f"{group.horovod}.{name_of(line)}" for group, line in NAMES]


@pytest.mark.parametrize(("group", "line"), NAMES, ids=IDS)
def test_the_name_has_horovods_parameters_in_order_and_default(group: Group, line: str) -> None:
    target = resolve(group.horovod, name_of(line))
    assert target == resolve(group.horovod.replace("horovod", "sirtaki", 1), name_of(line))
    assert target == resolve(group.where, name_of(line))
    if "(" not in line:
        return
    expected = expected_parameters(line, group.horovod)
    actual = actual_parameters(target, bound=True)
    assert actual[: len(expected)] == expected
    more = [default for _, default in actual[len(expected) :]]
    assert inspect.Parameter.empty not in more


@pytest.mark.parametrize(("group", "line"), NAMES, ids=IDS)
def test_the_test_that_is_named_has_the_name(group: Group, line: str) -> None:
    assert re.search(rf"\b{re.escape(name_of(line))}\b", (ROOT / group.test).read_text())


@pytest.mark.parametrize("framework", ["tensorflow", "keras", "jax"])
def test_the_reference_describes_every_name_with_its_arguments_and_errors(framework: str) -> None:
    assert not gaps(importlib.import_module(f"sirtaki.{framework}"))
