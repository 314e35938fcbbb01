"""Nets of Caffe's as modules of PyTorch's."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from caffe_tests import zoo
from caffe_tests.nets import inputs, product
from sirtaki_caffe.commands.tools.convert import main
from sirtaki_caffe.net.net import Net
from sirtaki_caffe.proto.schema import TEST
from sirtaki_caffe.proto.text import read_net
from sirtaki_caffe.proto.weights import write_weights

IMAGES = inputs("data", (2, 6, 9, 7))


def trained(path: Path) -> Net:
    """A net in whose BatchNorms, and other params, there is something."""
    net = Net(read_net(path), phase=TEST, seed=1)
    random = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for layer in net.layers:
            if layer.proto.type == "BatchNorm":
                layer.params[0].data.normal_(generator=random)
                layer.params[1].data.uniform_(1, 3, generator=random)
                layer.params[2].data.fill_(2)
            elif layer.proto.type in ("Scale", "Bias", "PReLU", "LRN"):
                for param in layer.params:
                    param.data.uniform_(0.5, 1.5, generator=random)
    for step in net.steps:
        if step.is_input:
            for top in step.tops:
                top.data.uniform_(0.1, 1, generator=random)
    return net


def imported(code: Path, state: Path) -> torch.nn.Module:
    spec = importlib.util.spec_from_file_location("converted", code)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (cls,) = (each for each in vars(module).values() if isinstance(each, type))
    net: torch.nn.Module = cls().eval()
    net.load_state_dict(torch.load(state, weights_only=True))
    return net


def converted(folder: Path, text: str) -> tuple[Net, torch.nn.Module, str]:
    """A net, and what was written of it."""
    path, weights = folder / "net.prototxt", folder / "net.caffemodel"
    path.write_text(text)
    net = trained(path)
    write_weights(weights, net.proto, net.saved())
    assert main([str(path), str(weights), str(folder / "out")]) == 0
    (code,) = (folder / "out").glob("*.py")
    (state,) = (folder / "out").glob("*.pt")
    return net, imported(code, state), code.read_text()


def assert_equal(net: Net, module: torch.nn.Module) -> None:
    given = [top.data for step in net.steps if step.is_input for top in step.tops]
    with torch.no_grad():
        net.forward()
        found = module(*given)
    (name,) = net.outputs
    torch.testing.assert_close(found, net.blobs[name].data, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "make", [zoo.lenet, zoo.alexnet, zoo.googlenet, zoo.resnet50], ids=lambda make: make.__name__
)
def test_a_net_of_the_zoo_gives_the_same_outputs(tmp_path: Path, make: Callable[..., Any]) -> None:
    net, module, code = converted(tmp_path, make("deploy", 1).text)
    assert_equal(net, module)
    learns = sum(param.data.numel() for param in net.learnable if param.learns)
    assert sum(p.numel() for p in module.parameters()) in (learns, make("deploy", 1).parameters)
    assert {line for line in code.splitlines() if "import" in line} <= {
        "import torch",
        "import torch.nn.functional as F",
        "from torch import nn",
    }


LAYERS = {
    "convolution": "Convolution convolution_param { num_output: 4 kernel_h: 3 kernel_w: 2 pad: 1 "
    'stride_h: 2 stride_w: 1 group: 2 bias_term: false weight_filler { type: "xavier" } }',
    "dilation": "Convolution convolution_param { num_output: 4 kernel_size: 3 dilation: 2 "
    'weight_filler { type: "xavier" } bias_filler { value: 1 } }',
    "deconvolution": "Deconvolution convolution_param { num_output: 4 kernel_size: 3 stride: 2 "
    'pad: 1 group: 2 weight_filler { type: "xavier" } }',
    "max pooling": "Pooling pooling_param { pool: MAX kernel_size: 3 stride: 2 pad: 1 }",
    "mean pooling": "Pooling pooling_param { pool: AVE kernel_size: 3 stride: 2 pad: 1 }",
    "floor pooling": "Pooling pooling_param { kernel_size: 2 stride: 2 round_mode: FLOOR }",
    "global pooling": "Pooling pooling_param { pool: AVE global_pooling: true }",
    "product": "InnerProduct inner_product_param { num_output: 3 "
    'weight_filler { type: "xavier" } }',
    "transposed": "InnerProduct inner_product_param { num_output: 3 transpose: true bias_term: "
    'false weight_filler { type: "xavier" } }',
    "last axis": "InnerProduct inner_product_param { num_output: 3 axis: -1 "
    'weight_filler { type: "xavier" } }',
    "lrn": "LRN lrn_param { local_size: 3 alpha: 0.5 beta: 0.75 k: 2 }",
    "lrn within": "LRN lrn_param { local_size: 3 alpha: 0.5 norm_region: WITHIN_CHANNEL }",
    "relu": "ReLU relu_param { negative_slope: 0.1 }",
    "prelu": "PReLU",
    "elu": "ELU elu_param { alpha: 0.7 }",
    "sigmoid": "Sigmoid",
    "tanh": "TanH",
    "absolute": "AbsVal",
    "bnll": "BNLL",
    "swish": "Swish swish_param { beta: 2 }",
    "clip": "Clip clip_param { min: 0.2 max: 0.5 }",
    "threshold": "Threshold threshold_param { threshold: 0.5 }",
    "power": "Power power_param { power: 2 scale: 0.5 shift: 1 }",
    "exp": "Exp exp_param { base: 2 scale: 0.5 shift: 1 }",
    "log": "Log log_param { base: 10 scale: 0.5 shift: 1 }",
    "dropout": "Dropout",
    "batch norm": "BatchNorm",
    "scale": "Scale scale_param { bias_term: true }",
    "scalar": "Scale scale_param { axis: 0 num_axes: 0 }",
    "bias": "Bias bias_param { axis: 2 num_axes: 2 }",
    "softmax": "Softmax",
    "flatten": "Flatten flatten_param { axis: 2 }",
    "reshape": "Reshape reshape_param { shape { dim: 0 dim: 3 dim: -1 } }",
    "permute": "Permute permute_param { order: 0 order: 2 order: 3 order: 1 }",
}


@pytest.mark.parametrize("case", LAYERS)
def test_a_layer_gives_the_same_outputs(tmp_path: Path, case: str) -> None:
    kind, _, parameters = LAYERS[case].partition(" ")
    layer = f'layer {{ name: "tested" type: "{kind}" bottom: "data" top: "y" {parameters} }}'
    net, module, _ = converted(tmp_path, IMAGES + layer)
    assert_equal(net, module)


@pytest.mark.parametrize(
    "layer",
    [
        'type: "Eltwise" bottom: "a" bottom: "b" eltwise_param { coeff: 2 coeff: -1 }',
        'type: "Eltwise" bottom: "a" bottom: "b" eltwise_param { operation: PROD }',
        'type: "Eltwise" bottom: "a" bottom: "b" eltwise_param { operation: MAX }',
        'type: "Concat" bottom: "a" bottom: "b" concat_param { axis: -1 }',
        'type: "Scale" bottom: "a" bottom: "c"',
    ],
)
def test_a_layer_of_two_bottoms_gives_the_same_outputs(tmp_path: Path, layer: str) -> None:
    text = inputs("a", (2, 3, 4), "b", (2, 3, 4), "c", (3,))
    net, module, _ = converted(tmp_path, f'{text} layer {{ name: "tested" top: "y" {layer} }}')
    with torch.no_grad():
        net.forward()
        used = [name for name in "abc" if f'bottom: "{name}"' in layer]
        found = module(*(net.blobs[name].data for name in used))
    torch.testing.assert_close(found, net.blobs["y"].data, rtol=1e-5, atol=1e-6)


def test_slices_splits_layers_in_place_and_shared_weights(tmp_path: Path) -> None:
    text = inputs("data", (2, 6))
    text += 'layer { name: "cut" type: "Slice" bottom: "data" top: "p/1" top: "p/2" }\n'
    for name in ("1", "2"):
        text += product(f"ip{name}", f"p/{name}", 3, more='param { name: "w" }')
        text += f'layer {{ name: "r{name}" type: "ReLU" bottom: "ip{name}" top: "ip{name}" }}\n'
    text += 'layer { name: "sum" type: "Eltwise" bottom: "ip1" bottom: "ip2" top: "sum" }\n'
    text += 'layer { name: "too" type: "Eltwise" bottom: "sum" bottom: "ip1" top: "too" }\n'
    net, module, code = converted(tmp_path, text)
    assert_equal(net, module)
    assert "self.ip2.weight = self.ip1.weight" in code
    assert "ip1 = F.relu(ip1)" in code
    assert len(list(module.parameters())) == 3


def test_a_scale_behind_a_batch_norm_becomes_its_weight_and_bias(tmp_path: Path) -> None:
    text = IMAGES + 'layer { name: "norm" type: "BatchNorm" bottom: "data" top: "y" }\n'
    text += 'layer { name: "scale" type: "Scale" bottom: "y" top: "y" '
    net, module, code = converted(tmp_path, text + "scale_param { bias_term: true } }")
    assert_equal(net, module)
    assert "self.norm = nn.BatchNorm2d(6, eps=1e-05, momentum=0.001)" in code
    assert "scale" not in code


def test_losses_and_labels_are_left_out(tmp_path: Path) -> None:
    net, module, code = converted(tmp_path, zoo.lenet("dummy", 2).text)
    assert "def forward(self, data):" in code
    net.forward()
    (scores,) = (
        step.bottoms[0].data for step in net.steps if step.layer.proto.type == "SoftmaxWithLoss"
    )
    with torch.no_grad():
        torch.testing.assert_close(module(net.blobs["data"].data), scores, rtol=1e-5, atol=1e-6)


def test_names_of_a_file_never_become_code(tmp_path: Path) -> None:
    text = 'name: "A\\n\\"\\"\\"; import os"\n' + inputs("data", (2, 6))
    name = '__import__(\\"os\\").abort()'
    text += product("ip", "data", 3, top=name) + product("forward", name, 2, top="self")
    text += product("3 in; x", "self", 2, top="lambda")
    net, module, code = converted(tmp_path, text)
    assert_equal(net, module)
    calls = {ast.unparse(n.func) for n in ast.walk(ast.parse(code)) if isinstance(n, ast.Call)}
    assert calls == {
        "nn.Linear",
        "super",
        "super().__init__",
        "self.ip",
        "self.forward_2",
        "self._3_in__x",
    }


@pytest.mark.parametrize(
    ("layer", "why"),
    [
        ('type: "MVN"', "(MVN): this type of layer is not converted"),
        (
            'type: "Pooling" pooling_param { kernel_size: 1 stride: 4 }',
            "(Pooling): its last windows are outside of the image",
        ),
    ],
)
def test_what_cannot_be_converted_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], layer: str, why: str
) -> None:
    path = tmp_path / "net.prototxt"
    path.write_text(IMAGES + f'layer {{ name: "m" bottom: "data" top: "y" {layer} }}')
    assert main([str(path), "--output", str(tmp_path)]) == 1
    assert f"layer 'm' {why}" in capsys.readouterr().err


def test_the_folder_must_be_given(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        main([str(tmp_path / "net.prototxt")])
