"""Where gradients go, and when those of params are whole."""

from __future__ import annotations

import pytest
import torch

from caffe_tests.nets import build, fill, inputs, loss, product
from sirtaki_caffe.errors import LayerError
from sirtaki_caffe.layers.base import Layer, Param
from sirtaki_caffe.net.net import Net

DATA = inputs("data", (2, 3), "target", (2, 2))


def backward_layers(net: Net) -> list[str]:
    return [step.layer.name for step in net.steps if step.needs_backward]


def wanted_bottoms(net: Net) -> dict[str, list[bool]]:
    return {step.layer.name: step.wants for step in net.steps if step.bottoms}


def frozen(name: str, bottom: str, outputs: int = 3) -> str:
    return product(name, bottom, outputs, more="param { lr_mult: 0 } param { lr_mult: 0 }")


def test_gradients_go_from_the_loss_to_what_learns() -> None:
    net = build(DATA + product("a", "data", 3) + product("b", "a", 2) + loss("b", "target"))
    assert backward_layers(net) == ["a", "b", "loss"]
    assert wanted_bottoms(net) == {"a": [False], "b": [True], "loss": [True, False]}


def test_frozen_layers_before_all_that_learn_do_not_run_backwards() -> None:
    text = DATA + frozen("a", "data") + frozen("b", "a") + product("c", "b", 2)
    net = build(text + loss("c", "target"))
    assert backward_layers(net) == ["c", "loss"]
    fill(net)
    net.forward()
    net.backward()
    assert [param.diff is not None for param in net.learnable] == [False] * 4 + [True] * 2


def test_gradients_pass_through_frozen_layers() -> None:
    text = DATA + product("a", "data", 3) + frozen("b", "a", 2) + loss("b", "target")
    net = build(text)
    assert backward_layers(net) == ["a", "b", "loss"]
    fill(net)
    net.forward()
    net.backward()
    assert [param.diff is not None for param in net.learnable] == [True, True, False, False]


def test_what_no_loss_depends_on_does_not_run_backwards() -> None:
    text = DATA + product("a", "data", 3) + product("b", "a", 2) + product("aside", "a", 2)
    net = build(text + loss("b", "target"))
    assert "aside" not in backward_layers(net)
    assert wanted_bottoms(net)["a_a_0_split"] == [True]


def test_a_net_without_loss_does_not_run_backwards() -> None:
    assert backward_layers(build(DATA + product("a", "data", 3))) == []


def test_force_backward_hands_gradients_to_the_inputs() -> None:
    text = DATA + product("a", "data", 3) + product("b", "a", 2)
    net = build("force_backward: true\n" + text, keep_graphs=True)
    fill(net)
    net.forward()
    net.blobs["b"].diff = torch.ones(2, 2, dtype=torch.float64)
    net.backward()
    first, second = net.layers[1].params[0].data, net.layers[2].params[0].data
    assert net.blobs["data"].diff.allclose(torch.ones(2, 2, dtype=torch.float64) @ second @ first)


CROP = (
    'layer { name: "cut" type: "Crop" bottom: "a" bottom: "b" top: "cut" crop_param { axis: 1 } }'
)
SMOOTH = (
    'layer { name: "loss" type: "SmoothL1Loss" bottom: "a" bottom: "target" bottom: "b" bottom: "b"'
    ' top: "loss" }'
)


@pytest.mark.parametrize(
    ("text", "wants"),
    [
        (CROP + loss("cut", "target"), {"cut": [True, False]}),
        (SMOOTH, {"loss": [True, False, False, False]}),
    ],
)
def test_gradients_end_at_bottoms_that_are_only_looked_at(
    text: str, wants: dict[str, list[bool]]
) -> None:
    net = build(DATA + product("a", "data", 2) + product("b", "data", 2) + text)
    assert wanted_bottoms(net) | wants == wanted_bottoms(net)
    assert "b" not in backward_layers(net)
    fill(net)
    net.forward()
    net.backward()
    assert [param.diff is not None for param in net.learnable] == [True] * 2 + [False] * 2


def test_force_backward_leaves_labels_alone() -> None:
    text = "force_backward: true\n" + inputs("data", (2, 3), "label", (2,))
    text += 'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "data" bottom: "label" }'
    assert wanted_bottoms(build(text))["loss"] == [True, False]


@pytest.mark.parametrize(
    ("flag", "expected"), [("true", ["a", "b", "loss"]), ("false", ["b", "loss"])]
)
def test_propagate_down_stops_gradients(flag: str, expected: list[str]) -> None:
    text = DATA + product("a", "data", 3) + product("b", "a", 2, more=f"propagate_down: {flag}")
    assert backward_layers(build(text + loss("b", "target"))) == expected


def test_propagate_down_of_one_branch_leaves_the_other() -> None:
    text = DATA + product("a", "data", 2) + product("b", "a", 2, more="propagate_down: false")
    text += product("c", "a", 2) + loss("b", "target", name="l1") + loss("c", "target", name="l2")
    net = build(text)
    assert backward_layers(net) == ["a", "a_a_0_split", "b", "c", "l1", "l2"]
    alone = build(DATA + product("a", "data", 2) + product("c", "a", 2) + loss("c", "target"))
    copies = {"a": "a", "c": "c"}
    with torch.no_grad():
        for layer in alone.layers:
            if layer.name in copies:
                source = next(other for other in net.layers if other.name == layer.name)
                for mine, other in zip(layer.params, source.params, strict=True):
                    mine.data.copy_(other.data)
    for each in (net, alone):
        fill(each)
        each.forward()
        each.backward()
    assert net.learnable[0].diff.allclose(alone.learnable[0].diff)


def test_a_gradient_that_a_layer_does_not_have_is_refused() -> None:
    text = inputs("data", (2, 3)) + product("scores", "data", 2) + product("label", "data", 1)
    text += 'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "scores" bottom: "label" }'
    with pytest.raises(LayerError, match=r"layer 'loss'.*no gradient for its bottom 1, 'label'"):
        build(text)


def test_a_layer_tells_when_its_own_params_are_whole() -> None:
    text = DATA + product("a", "data", 3, more='param { name: "w" }')
    text += product("b", "a", 3, more='param { name: "w" }') + product("c", "b", 2)
    net = build(text + loss("c", "target"))
    fill(net)
    told: list[tuple[str, int]] = []
    seen: list[torch.Tensor] = []

    def after(layer: Layer, params: list[Param]) -> None:
        told.append((layer.name, len(params)))
        seen.extend(param.diff.clone() for param in params if param.diff is not None)

    net.forward()
    net.backward(after_layer=after)
    assert told == [("c", 2), ("b", 1), ("a", 2)]
    assert seen[-2].equal(net.learnable[0].diff)


def test_gradients_add_up_until_they_are_cleared() -> None:
    net = build(DATA + product("a", "data", 2) + loss("a", "target"))
    fill(net)
    net.forward()
    net.backward()
    once = net.learnable[0].diff.clone()
    net.forward()
    net.backward()
    assert net.learnable[0].diff.allclose(2 * once)
    net.clear_diffs()
    assert all(param.diff is None for param in net.learnable)


def test_without_gradients_nothing_is_kept_for_them() -> None:
    net = build(DATA + product("a", "data", 2) + loss("a", "target"))
    with torch.no_grad():
        net.forward()
    assert all(step.ran is None for step in net.steps)


def test_blobs_let_their_gradients_go_when_these_were_used() -> None:
    net = build(DATA + product("a", "data", 3) + product("b", "a", 2) + loss("b", "target"))
    fill(net)
    net.forward()
    net.backward()
    assert net.blobs["a"].diff is None
    assert all(step.ran is None for step in net.steps)
