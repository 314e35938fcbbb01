"""Which layers of a file are built."""

from __future__ import annotations

import pytest

from caffe_tests.nets import build, message
from sirtaki_caffe.errors import LayerError
from sirtaki_caffe.net.filter import filter_net
from sirtaki_caffe.proto.schema import TEST, TRAIN


def kept(rules: str, phase: int = TRAIN, level: int = 0, stages: tuple[str, ...] = ()) -> bool:
    net = message(f'layer {{ name: "a" type: "Silence" {rules} }}')
    return len(filter_net(net, phase, level, stages).layer) == 1


@pytest.mark.parametrize(
    ("rules", "state", "expected"),
    [
        ("", (TRAIN,), True),
        ("include { phase: TRAIN }", (TRAIN,), True),
        ("include { phase: TRAIN }", (TEST,), False),
        ("exclude { phase: TRAIN }", (TRAIN,), False),
        ("exclude { phase: TRAIN }", (TEST,), True),
        ("include { phase: TRAIN } include { phase: TEST }", (TEST,), True),
        ("include { min_level: 2 }", (TRAIN, 1), False),
        ("include { min_level: 2 }", (TRAIN, 2), True),
        ("include { max_level: 2 }", (TRAIN, 2), True),
        ("include { max_level: 2 }", (TRAIN, 3), False),
        ("include { min_level: 1 max_level: 2 }", (TRAIN, 0), False),
        ('include { stage: "deploy" }', (TRAIN,), False),
        ('include { stage: "deploy" }', (TRAIN, 0, ("deploy",)), True),
        ('include { stage: "a" stage: "b" }', (TRAIN, 0, ("a",)), False),
        ('include { stage: "a" stage: "b" }', (TRAIN, 0, ("b", "a", "c")), True),
        ('include { not_stage: "a" }', (TRAIN, 0, ("a",)), False),
        ('include { not_stage: "a" }', (TRAIN, 0, ("b",)), True),
        ('include { phase: TEST stage: "a" }', (TRAIN, 0, ("a",)), False),
        ('exclude { stage: "a" } exclude { phase: TEST }', (TEST,), False),
    ],
)
def test_a_layer_is_kept_by_its_rules(rules: str, state: tuple, expected: bool) -> None:
    assert kept(rules, *state) is expected


def test_rules_to_include_and_to_exclude_are_refused() -> None:
    with pytest.raises(LayerError, match=r"layer 'a' \(Silence\): has rules to include and"):
        kept("include { phase: TRAIN } exclude { phase: TEST }")


def test_the_state_of_the_file_gives_level_and_stages() -> None:
    net = message(
        'state { level: 2 stage: "x" }'
        'layer { name: "a" type: "Silence" include { min_level: 2 stage: "x" } }'
    )
    assert len(filter_net(net, TEST).layer) == 1


def test_an_all_in_one_net_is_three_nets() -> None:
    text = """
      layer { name: "t" type: "Input" top: "data" top: "label" include { phase: TRAIN }
              input_param { shape { dim: 4 dim: 2 } shape { dim: 4 } } }
      layer { name: "v" type: "Input" top: "data" top: "label"
              include { phase: TEST not_stage: "deploy" }
              input_param { shape { dim: 3 dim: 2 } shape { dim: 3 } } }
      layer { name: "d" type: "Input" top: "data" include { phase: TEST stage: "deploy" }
              input_param { shape { dim: 1 dim: 2 } } }
      layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
              inner_product_param { num_output: 2 } }
      layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss"
              include { phase: TRAIN } include { phase: TEST not_stage: "deploy" } }
      layer { name: "prob" type: "Softmax" bottom: "ip" top: "prob"
              include { phase: TEST stage: "deploy" } }
    """
    train = build(text, phase=TRAIN)
    validate = build(text, phase=TEST)
    deploy = build(text, phase=TEST, stages=["deploy"])
    assert [layer.name for layer in train.layers] == ["t", "ip", "loss"]
    assert [layer.name for layer in validate.layers] == ["v", "ip", "loss"]
    assert [layer.name for layer in deploy.layers] == ["d", "ip", "prob"]


def test_layers_have_the_phase_of_their_net_unless_they_name_one() -> None:
    net = build(
        'layer { name: "a" type: "Input" top: "a" input_param { shape { dim: 1 } } }'
        'layer { name: "b" type: "Silence" bottom: "a" phase: TRAIN }',
        phase=TEST,
    )
    assert [layer.phase for layer in net.proto.layer] == [TEST, TRAIN]
