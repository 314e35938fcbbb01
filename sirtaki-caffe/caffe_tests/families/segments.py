"""Nets that name each pixel, or each picture of a film, as text."""

from __future__ import annotations

from caffe_tests.zoo_writer import Writer

VGG = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))


def fcn8s(width: int = 1, size: int = 500) -> Writer:
    """Long 2015: VGG-16 with scores at three scales; channels divided by `width`."""
    net = Writer("FCN-8s", "deploy")
    top = net.input("data", 1, 3, size, size)
    net.input("label", 1, 1, size, size)
    for stage, (outputs, count) in enumerate(VGG, 1):
        for index in range(1, count + 1):
            name, pad = f"conv{stage}_{index}", 100 if top == "data" else 1
            top = net.conv(name, top, outputs // width, 3, pad=pad)
            net.inplace("ReLU", f"relu{stage}_{index}", top)
        top = net.pool(f"pool{stage}", top, "MAX", 2, 2)
    for name, kernel in (("fc6", 7), ("fc7", 1)):
        top = net.conv(name, top, 4096 // width, kernel)
        net.inplace("ReLU", f"relu_{name}", top)
        net.inplace("Dropout", f"drop_{name}", top, "dropout_param { dropout_ratio: 0.5 }")
    top = net.upsample("upscore2", net.conv("score_fr", top, 21, 1), 21, 4, 2)
    for pool, name, offset in (("pool4", "upscore_pool4", 5), ("pool3", "upscore8", 9)):
        side = net.crop(f"score_{pool}c", net.conv(f"score_{pool}", pool, 21, 1), top, offset)
        top = net.add(f"fuse_{pool}", top, side)
        kernel, stride = (4, 2) if pool == "pool4" else (16, 8)
        top = net.upsample(name, top, 21, kernel, stride, fixed=pool == "pool3")
    net.crop("score", top, "data", 31)
    body = "loss_param { ignore_label: 255 normalize: false }"
    net.layer("SoftmaxWithLoss", "loss", ["score", "label"], ["loss"], body)
    return net


def unet(width: int = 1, size: int = 572) -> Writer:
    """Ronneberger 2015: down and up again, with a look at what was there on the way down."""
    net = Writer("U-Net", "deploy")
    top = net.input("data", 1, 1, size, size)

    def twice(name: str, bottom: str, outputs: int) -> str:
        for letter in "ab":
            bottom = net.conv(f"{name}{letter}", bottom, outputs // width, 3)
            net.inplace("ReLU", f"{name}{letter}_relu", bottom)
        return bottom

    downs = []
    for depth, outputs in enumerate((64, 128, 256, 512)):
        downs.append(twice(f"down{depth}", top, outputs))
        top = net.pool(f"pool{depth}", downs[-1], "MAX", 2, 2)
    top = twice("bottom", top, 1024)
    net.inplace("Dropout", "drop", top, "dropout_param { dropout_ratio: 0.5 }")
    for depth, outputs in ((3, 512), (2, 256), (1, 128), (0, 64)):
        top = net.upsample(f"up{depth}", top, outputs // width, 2, 2)
        side = downs[depth]
        offset = (net.shapes[side][1] - net.shapes[top][1]) // 2
        side = net.crop(f"crop{depth}", side, top, offset)
        top = twice(f"join{depth}", net.concat(f"both{depth}", [side, top]), outputs)
    net.conv("score", top, 2, 1)
    net.input("label", 1, 1, *net.shapes["score"][1:])
    net.layer("SoftmaxWithLoss", "loss", ["score", "label"], ["loss"])
    return net


def lrcn(steps: int = 16, films: int = 1, size: int = 227, units: int = 256) -> Writer:
    """Donahue 2015: a small CaffeNet for each picture, and an LSTM over the pictures of a film."""
    net = Writer("LRCN", "deploy")
    top = net.input("data", steps * films, 3, size, size)
    net.input("cont", steps, films)
    net.input("label", steps, films)
    for index, sizes in enumerate(((96, 7, 2, 0), (384, 5, 2, 0), (512, 3, 1, 1)), 1):
        top = net.conv(f"conv{index}", top, *sizes)
        net.inplace("ReLU", f"relu{index}", top)
        top = net.pool(f"pool{index}", top, "MAX", 3, 2)
    top = net.inplace("ReLU", "relu6", net.full("fc6", top, units))
    shape = f"reshape_param {{ shape {{ dim: {steps} dim: {films} dim: {units} }} }}"
    net.layer("Reshape", "sequences", [top], ["sequences"], shape)
    net.parameters += 4 * units * (2 * units + 1)
    fillers = 'weight_filler { type: "uniform" min: -0.05 max: 0.05 } bias_filler { value: 0 }'
    net.layer(
        *("LSTM", "lstm", ["sequences", "cont"], ["lstm"]),
        f"recurrent_param {{ num_output: {units} {fillers} }}",
    )
    net.parameters += 101 * (units + 1)
    net.layer(
        *("InnerProduct", "scores", ["lstm"], ["scores"]),
        'inner_product_param { num_output: 101 axis: 2 weight_filler { type: "xavier" } }',
    )
    body = "softmax_param { axis: 2 }\nloss_param { ignore_label: -1 }"
    net.layer("SoftmaxWithLoss", "loss", ["scores", "label"], ["loss"], body)
    return net
