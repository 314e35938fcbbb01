"""Well-known nets as text, written layer by layer from their published descriptions.

Each function gives a `Writer` with the text of a net in `text` and the number of its learnable
parameters in `parameters`; `data` chooses where its images come from: "dummy" needs no files.
Images have the published size, or `size` pixels each way.
"""

from __future__ import annotations

from collections.abc import Callable

from caffe_tests.zoo_inception3 import Inception3
from caffe_tests.zoo_writer import Writer


def lenet(data: str = "dummy", batch: int = 1, size: int = 0) -> Writer:
    """Digits, after LeCun 1998 with ReLU."""
    net = Writer("LeNet", data, batch, size)
    top = net.pool("pool1", net.conv("conv1", net.images(1, 28, 10), 20, 5), "MAX", 2, 2)
    top = net.pool("pool2", net.conv("conv2", top, 50, 5), "MAX", 2, 2)
    top = net.inplace("ReLU", "relu1", net.full("ip1", top, 500))
    return net.classes(net.full("ip2", top, 10))


def cifar10(full: bool, data: str = "dummy", batch: int = 1, size: int = 0) -> Writer:
    """Small images: the quick and the full net of Krizhevsky's cuda-convnet."""
    net = Writer("CIFAR10_full" if full else "CIFAR10_quick", data, batch, size)
    top = net.images(3, 32, 10)
    for index, (outputs, kind) in enumerate(((32, "MAX"), (32, "AVE"), (64, "AVE")), 1):
        top = net.conv(f"conv{index}", top, outputs, 5, pad=2)
        if index == 1:
            top = net.inplace("ReLU", "relu1", net.pool("pool1", top, kind, 3, 2))
        else:
            net.inplace("ReLU", f"relu{index}", top)
            top = net.pool(f"pool{index}", top, kind, 3, 2)
        if full and index < 3:
            region = "local_size: 3 alpha: 5e-05 beta: 0.75 norm_region: WITHIN_CHANNEL"
            top = net.same("LRN", f"norm{index}", top, f"lrn_param {{ {region} }}")
    if not full:
        top = net.full("ip1", top, 64)
    return net.classes(net.full("ip2", top, 10))


def cifar10_quick(data: str = "dummy", batch: int = 1, size: int = 0) -> Writer:
    """The quick one."""
    return cifar10(False, data, batch, size)


def cifar10_full(data: str = "dummy", batch: int = 1, size: int = 0) -> Writer:
    """The full one."""
    return cifar10(True, data, batch, size)


LRN = "lrn_param { local_size: 5 alpha: 0.0001 beta: 0.75 }"


#: Outputs, kernel, stride, padding and groups of its convolutions.
_ALEXNET = (
    (96, 11, 4, 0, 1),
    (256, 5, 1, 2, 2),
    (384, 3, 1, 1, 1),
    (384, 3, 1, 1, 2),
    (256, 3, 1, 1, 2),
)


def _alexnet(name: str, norm_first: bool, data: str, batch: int, size: int) -> Writer:
    net = Writer(name, data, batch, size)
    top = net.images(3, 227)
    for index, sizes in enumerate(_ALEXNET, 1):
        top = net.conv(f"conv{index}", top, *sizes)
        net.inplace("ReLU", f"relu{index}", top)
        if norm_first and index < 3:
            top = net.same("LRN", f"norm{index}", top, LRN)
        if index in (1, 2, 5):
            top = net.pool(f"pool{index}", top, "MAX", 3, 2)
        if not norm_first and index < 3:
            top = net.same("LRN", f"norm{index}", top, LRN)
    for index in (6, 7):
        top = net.inplace("ReLU", f"relu{index}", net.full(f"fc{index}", top, 4096))
        net.inplace("Dropout", f"drop{index}", top, "dropout_param { dropout_ratio: 0.5 }")
    return net.classes(net.full("fc8", top, 1000), top5=True)


def alexnet(data: str = "dummy", batch: int = 1, size: int = 0) -> Writer:
    """Krizhevsky 2012: normalised, then pooled."""
    return _alexnet("AlexNet", True, data, batch, size)


def caffenet(data: str = "dummy", batch: int = 1, size: int = 0) -> Writer:
    """The same with pooling before normalisation."""
    return _alexnet("CaffeNet", False, data, batch, size)


def vgg(depth: int, data: str = "dummy", batch: int = 1, size: int = 0) -> Writer:
    """Simonyan and Zisserman 2014: 16 or 19 layers of 3x3 convolutions."""
    net = Writer(f"VGG_ILSVRC_{depth}_layers", data, batch, size)
    top = net.images(3, 224)
    long = {16: 3, 19: 4}[depth]
    for stage, (outputs, count) in enumerate(
        ((64, 2), (128, 2), (256, long), (512, long), (512, long)), 1
    ):
        for index in range(1, count + 1):
            top = net.conv(f"conv{stage}_{index}", top, outputs, 3, pad=1)
            net.inplace("ReLU", f"relu{stage}_{index}", top)
        top = net.pool(f"pool{stage}", top, "MAX", 2, 2)
    for index in (6, 7):
        top = net.inplace("ReLU", f"relu{index}", net.full(f"fc{index}", top, 4096))
        net.inplace("Dropout", f"drop{index}", top, "dropout_param { dropout_ratio: 0.5 }")
    return net.classes(net.full("fc8", top, 1000), top5=True)


def vgg16(data: str = "dummy", batch: int = 1, size: int = 0) -> Writer:
    """VGG with 16 layers."""
    return vgg(16, data, batch, size)


_INCEPTIONS = {
    "3a": (64, 96, 128, 16, 32, 32),
    "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128),
    "5a": (256, 160, 320, 32, 128, 128),
    "5b": (384, 192, 384, 48, 128, 128),
}


def googlenet(data: str = "dummy", batch: int = 1, size: int = 0) -> Writer:
    """Szegedy 2014, with its two heads in between where it is trained."""
    net = Writer("GoogleNet", data, batch, size)

    def conv(name: str, bottom: str, outputs: int, kernel: int, stride: int = 1) -> str:
        top = net.conv(name, bottom, outputs, kernel, stride, kernel // 2)
        head, _, last = name.rpartition("/")
        return net.inplace("ReLU", f"{head}/relu_{last}", top)

    top = conv("conv1/7x7_s2", net.images(3, 224), 64, 7, 2)
    top = net.pool("pool1/3x3_s2", top, "MAX", 3, 2)
    top = net.same("LRN", "pool1/norm1", top, LRN)
    top = conv("conv2/3x3", conv("conv2/3x3_reduce", top, 64, 1), 192, 3)
    top = net.same("LRN", "conv2/norm2", top, LRN)
    top = net.pool("pool2/3x3_s2", top, "MAX", 3, 2)
    for name, (one, three_in, three, five_in, five, pooled) in _INCEPTIONS.items():
        at = f"inception_{name}"
        parts = [
            conv(f"{at}/1x1", top, one, 1),
            conv(f"{at}/3x3", conv(f"{at}/3x3_reduce", top, three_in, 1), three, 3),
            conv(f"{at}/5x5", conv(f"{at}/5x5_reduce", top, five_in, 1), five, 5),
            conv(f"{at}/pool_proj", net.pool(f"{at}/pool", top, "MAX", 3, 1, 1), pooled, 1),
        ]
        top = net.concat(f"{at}/output", parts)
        if name in ("3b", "4e"):
            top = net.pool(f"pool{int(name[0])}/3x3_s2", top, "MAX", 3, 2)
        if name in ("4a", "4d") and net.trains:
            loss = f"loss{1 if name == '4a' else 2}"
            side = conv(f"{loss}/conv", net.pool(f"{loss}/ave_pool", top, "AVE", 5, 3), 128, 1)
            side = net.inplace("ReLU", f"{loss}/relu_fc", net.full(f"{loss}/fc", side, 1024))
            net.inplace("Dropout", f"{loss}/drop_fc", side, "dropout_param { dropout_ratio: 0.7 }")
            net.classes(net.full(f"{loss}/classifier", side, 1000), f"{loss}/loss", 0.3, True)
    top = net.pool("pool5/7x7_s1", top, "AVE", 7)
    net.inplace("Dropout", "pool5/drop_7x7_s1", top, "dropout_param { dropout_ratio: 0.4 }")
    return net.classes(net.full("loss3/classifier", top, 1000), "loss3/loss3", top5=True)


def resnet(depth: int, data: str = "dummy", batch: int = 1, size: int = 0) -> Writer:
    """He 2015: bottlenecks whose first convolution has the stride; 50, 101 or 152 layers."""
    net = Writer(f"ResNet-{depth}", data, batch, size)
    blocks = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}[depth]

    def conv(at: str, bottom: str, outputs: int, kernel: int, stride: int, relu: bool) -> str:
        top = net.conv(f"res{at}", bottom, outputs, kernel, stride, kernel // 2, bias=False)
        net.norm(f"bn{at}", top, f"scale{at}")
        return net.inplace("ReLU", f"res{at}_relu", top) if relu else top

    top = net.conv("conv1", net.images(3, 224), 64, 7, 2, 3, bias=depth == 50)
    net.norm("bn_conv1", top, "scale_conv1")
    top = net.pool("pool1", net.inplace("ReLU", "conv1_relu", top), "MAX", 3, 2)
    for stage, count in enumerate(blocks, 2):
        width = 32 << (stage - 1)
        for index in range(count):
            long = count > 6 and index > 0
            at = f"{stage}b{index}" if long else f"{stage}{chr(ord('a') + index)}"
            stride = 2 if index == 0 and stage > 2 else 1
            short = top if index else conv(f"{at}_branch1", top, 4 * width, 1, stride, False)
            side = conv(f"{at}_branch2a", top, width, 1, stride, True)
            side = conv(f"{at}_branch2b", side, width, 3, 1, True)
            side = conv(f"{at}_branch2c", side, 4 * width, 1, 1, False)
            top = net.inplace("ReLU", f"res{at}_relu", net.add(f"res{at}", short, side))
    top = net.full("fc1000", net.pool("pool5", top, "AVE", 7), 1000)
    return net.classes(top, top5=True)


def resnet50(data: str = "dummy", batch: int = 1, size: int = 0) -> Writer:
    """ResNet with 50 layers."""
    return resnet(50, data, batch, size)


def resnet18(data: str = "dummy", batch: int = 1, size: int = 0) -> Writer:
    """He 2015: two convolutions of 3x3 a block, eight blocks."""
    net = Writer("ResNet-18", data, batch, size)

    def conv(at: str, bottom: str, outputs: int, kernel: int, stride: int, relu: bool) -> str:
        top = net.conv(f"res{at}", bottom, outputs, kernel, stride, kernel // 2, bias=False)
        net.norm(f"bn{at}", top, f"scale{at}")
        return net.inplace("ReLU", f"res{at}_relu", top) if relu else top

    top = conv("1", net.images(3, 224), 64, 7, 2, True)
    top = net.pool("pool1", top, "MAX", 3, 2)
    for stage, width in enumerate((64, 128, 256, 512), 2):
        for at, stride in ((f"{stage}a", 1 if stage == 2 else 2), (f"{stage}b", 1)):
            narrow = net.shapes[top][0] != width
            short = conv(f"{at}_branch1", top, width, 1, stride, False) if narrow else top
            side = conv(f"{at}_branch2a", top, width, 3, stride, True)
            side = conv(f"{at}_branch2b", side, width, 3, 1, False)
            top = net.inplace("ReLU", f"res{at}_relu", net.add(f"res{at}", short, side))
    top = net.full("fc1000", net.pool("pool5", top, "AVE", 7), 1000)
    return net.classes(top, top5=True)


def resnet152(data: str = "dummy", batch: int = 1, size: int = 0) -> Writer:
    """ResNet with 152 layers."""
    return resnet(152, data, batch, size)


def autoencoder(data: str = "dummy", batch: int = 1, size: int = 0) -> Writer:
    """Hinton 2006: 784-1000-500-250-30 and back, with two losses of which one weighs."""
    net = Writer("MNISTAutoencoder", data, batch, size)
    top = net.images(1, 28, 10)
    flat = net.layer("Flatten", "flatdata", [top], ["flatdata"])
    net.shapes[flat] = (784,)
    sizes = (1000, 500, 250, 30, 250, 500, 1000)
    for index, size in enumerate(sizes, 1):
        side, at = ("encode", index) if index < 5 else ("decode", 9 - index)
        top = net.full(f"{side}{at}", top, size)
        if size != 30:
            top = net.same("Sigmoid", f"{side}{at}neuron", top)
    top = net.full("decode1", top, 784)
    if net.trains:
        net.layer("Silence", "quiet", ["label"], [])
        cross = "loss_weight: 1"
        losses = ["decode1", "flatdata"]
        net.layer("SigmoidCrossEntropyLoss", "loss", losses, ["cross_entropy_loss"], cross)
    top = net.same("Sigmoid", "decode1neuron", top)
    if net.trains:
        losses = ["decode1neuron", "flatdata"]
        net.layer("EuclideanLoss", "loss2", losses, ["l2_error"], "loss_weight: 0")
    return net


def siamese(data: str = "dummy", batch: int = 1, size: int = 0) -> Writer:
    """Pairs of digits, one in each channel, through LeNets that share their params."""
    net = Writer("mnist_siamese", data, batch, size)
    pair = net.images(2, 28, 2)
    names = ["left", "right"]
    net.layer("Slice", "slice_pair", [pair], names, "slice_param { slice_dim: 1 slice_point: 1 }")
    tops = []
    for name, tail in zip(names, ("", "_p"), strict=True):
        net.shapes[name] = (1, 28, 28)
        top = net.conv(f"conv1{tail}", name, 20, 5, share="conv1")
        top = net.pool(f"pool1{tail}", top, "MAX", 2, 2)
        top = net.conv(f"conv2{tail}", top, 50, 5, share="conv2")
        top = net.pool(f"pool2{tail}", top, "MAX", 2, 2)
        top = net.full(f"ip1{tail}", top, 500, share="ip1")
        top = net.full(f"ip2{tail}", net.inplace("ReLU", f"relu1{tail}", top), 10, share="ip2")
        tops.append(net.full(f"feat{tail}", top, 2, share="feat"))
    if net.trains:
        margin = "contrastive_loss_param { margin: 1 }"
        net.layer("ContrastiveLoss", "loss", [*tops, "label"], ["loss"], margin)
    return net


def squeezenet(data: str = "dummy", batch: int = 1, size: int = 0) -> Writer:
    """Iandola 2016, version 1.0: fire modules, and no inner product."""
    net = Writer("SqueezeNet", data, batch, size)

    def conv(name: str, bottom: str, outputs: int, kernel: int, stride: int = 1) -> str:
        pad = 1 if kernel == 3 else 0
        return net.inplace(
            "ReLU", f"{name}_relu", net.conv(name, bottom, outputs, kernel, stride, pad)
        )

    top = net.pool("pool1", conv("conv1", net.images(3, 227), 96, 7, 2), "MAX", 3, 2)
    for index, squeeze in enumerate((16, 16, 32, 32, 48, 48, 64, 64), 2):
        side = conv(f"fire{index}/squeeze1x1", top, squeeze, 1)
        one = conv(f"fire{index}/expand1x1", side, 4 * squeeze, 1)
        three = conv(f"fire{index}/expand3x3", side, 4 * squeeze, 3)
        top = net.concat(f"fire{index}/concat", [one, three])
        if index in (4, 8):
            top = net.pool(f"pool{index}", top, "MAX", 3, 2)
    net.inplace("Dropout", "drop9", top, "dropout_param { dropout_ratio: 0.5 }")
    return net.classes(net.pool("pool10", conv("conv10", top, 1000, 1), "AVE", 0), top5=True)


def mobilenet(data: str = "dummy", batch: int = 1, size: int = 0) -> Writer:
    """Howard 2017: each channel by itself, then all channels of a pixel."""
    net = Writer("MobileNet", data, batch, size)

    def conv(name: str, bottom: str, outputs: int, kernel: int, stride: int, group: int) -> str:
        top = net.conv(name, bottom, outputs, kernel, stride, kernel // 2, group, bias=False)
        net.norm(f"{name}/bn", top, f"{name}/scale")
        return net.inplace("ReLU", f"relu_{name}", top)

    top = conv("conv1", net.images(3, 224), 32, 3, 2, 1)
    outputs = (64, 128, 128, 256, 256, *[512] * 6, 1024, 1024)
    for index, each in enumerate(outputs, 1):
        width = net.shapes[top][0]
        stride = 2 if index in (2, 4, 6, 12) else 1
        top = conv(
            f"conv{index}/sep", conv(f"conv{index}/dw", top, width, 3, stride, width), each, 1, 1, 1
        )
    return net.classes(net.conv("fc7", net.pool("pool6", top, "AVE", 0), 1000, 1), top5=True)


def inception_v3(data: str = "dummy", batch: int = 1, size: int = 0) -> Writer:
    """Szegedy 2015, with a Scale behind each BatchNorm."""
    return Inception3(Writer("Inception_v3", data, batch, size), scaled=True).write()


def googlenet_v3(data: str = "dummy", batch: int = 1, size: int = 0) -> Writer:
    """The same as Intel's nets have it: BatchNorm is affine."""
    return Inception3(Writer("googlenet_v3", data, batch, size), scaled=False).write()


#: All nets by name, and their learnable parameters where images come with labels.
NETS: dict[str, tuple[Callable[..., Writer], int]] = {
    "lenet": (lenet, 431080),
    "cifar10_quick": (cifar10_quick, 145578),
    "cifar10_full": (cifar10_full, 89578),
    "siamese": (siamese, 431102),
    "autoencoder": (autoencoder, 2837314),
    "alexnet": (alexnet, 60965224),
    "caffenet": (caffenet, 60965224),
    "googlenet": (googlenet, 13378280),
    "vgg16": (vgg16, 138357544),
    "resnet18": (resnet18, 11689512),
    "resnet50": (resnet50, 25557096),
    "resnet152": (resnet152, 60192808),
    "squeezenet": (squeezenet, 1248424),
    "mobilenet": (mobilenet, 4231976),
    "inception_v3": (inception_v3, 23834568),
    "googlenet_v3": (googlenet_v3, 23800136 + 34432),
}
