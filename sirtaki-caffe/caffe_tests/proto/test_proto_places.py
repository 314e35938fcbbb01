"""Where fields and layers stand in a text that has been read."""

from __future__ import annotations

import pytest

from sirtaki_caffe.proto.grammar.tokens import field_place, layer_lines

SOLVER = """# base_lr: in a comment
net_param { base_lr: 1 layer < name: "base_lr" > }
lr_policy: "step" base_lr: 0.1
solver_mode: CPU stepvalue: [3, 4]
max_iter: -5
"""


@pytest.mark.parametrize(
    ("field", "place"),
    [
        ("net_param", "s:2:1"),
        ("lr_policy", "s:3:1"),
        ("base_lr", "s:3:19"),
        ("solver_mode", "s:4:1"),
        ("max_iter", "s:5:1"),
        ("CPU", "s"),
        ("gamma", "s"),
    ],
)
def test_a_field_of_the_outermost_message_is_found(field: str, place: str) -> None:
    assert field_place(SOLVER, "s", field) == place


def test_layers_of_a_name_are_found() -> None:
    text = """name: 'a'
layer { name: "a" param { name: "b" } }
layer {
  type: "a" name: 'b'
}
layers { name: "a" } layer { bottom: "b" }
"""
    assert layer_lines(text, "a") == [2, 6]
    assert layer_lines(text, "b") == [3]
