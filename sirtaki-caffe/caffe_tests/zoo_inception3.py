"""Inception-v3 as text, after Szegedy 2015."""

from __future__ import annotations

from caffe_tests.zoo_writer import Writer

Size = int | tuple[int, int]
#: A convolution: outputs, kernel, stride, whether it keeps the size of the plane.
Step = tuple[int, Size, int, bool]


class Inception3:
    """Writes the net; each of its convolutions has a BatchNorm and a ReLU behind it.

    Args:
        net: Where it is written to.
        scaled: Whether a Scale follows each BatchNorm; else BatchNorm itself is affine.
    """

    def __init__(self, net: Writer, scaled: bool) -> None:
        self._net = net
        self._scaled = scaled

    def write(self) -> Writer:
        """The whole net."""
        net = self._net
        top = self._branch("conv1", net.images(3, 299), [(32, 3, 2, False), (32, 3, 1, False)])
        top = net.pool("pool1", self._branch("conv2", top, [(64, 3, 1, True)]), "MAX", 3, 2)
        top = self._branch("conv3", top, [(80, 1, 1, True), (192, 3, 1, False)])
        top = net.pool("pool2", top, "MAX", 3, 2)
        for index, pooled in enumerate((32, 64, 64)):
            top = self._plain(f"mixed_a{index}", top, pooled)
        top = self._smaller(
            *("mixed_b", top, [(384, 3, 2, False)]),
            [(64, 1, 1, True), (96, 3, 1, True), (96, 3, 2, False)],
        )
        for index, inner in enumerate((128, 160, 160, 192)):
            top = self._factored(f"mixed_c{index}", top, inner)
        factored: list[Step] = [(192, 1, 1, True), (192, (1, 7), 1, True), (192, (7, 1), 1, True)]
        top = self._smaller(
            *("mixed_d", top, [(192, 1, 1, True), (320, 3, 2, False)]),
            [*factored, (192, 3, 2, False)],
        )
        for index in range(2):
            top = self._wide(f"mixed_e{index}", top)
        top = net.pool("pool3", top, "AVE", 8)
        net.inplace("Dropout", "drop", top, "dropout_param { dropout_ratio: 0.2 }")
        return net.classes(net.full("classifier", top, 1000), top5=True)

    def _branch(self, name: str, bottom: str, steps: list[Step]) -> str:
        net = self._net
        for index, (outputs, kernel, stride, keeps) in enumerate(steps, 1):
            at = f"{name}_{index}"
            kh, kw = kernel if isinstance(kernel, tuple) else (kernel, kernel)
            pad: Size = (kh // 2, kw // 2) if isinstance(kernel, tuple) else kernel // 2
            bottom = net.conv(at, bottom, outputs, kernel, stride, pad if keeps else 0, bias=False)
            net.norm(f"{at}_bn", bottom, f"{at}_scale" if self._scaled else None)
            net.inplace("ReLU", f"{at}_relu", bottom)
        return bottom

    def _pooled(self, name: str, bottom: str, outputs: int) -> str:
        pooled = self._net.pool(f"{name}_pool", bottom, "AVE", 3, 1, 1)
        return self._branch(f"{name}_proj", pooled, [(outputs, 1, 1, True)])

    def _plain(self, name: str, bottom: str, pooled: int) -> str:
        three: list[Step] = [(64, 1, 1, True), (96, 3, 1, True), (96, 3, 1, True)]
        return self._net.concat(
            name,
            [
                self._branch(f"{name}_1x1", bottom, [(64, 1, 1, True)]),
                self._branch(f"{name}_5x5", bottom, [(48, 1, 1, True), (64, 5, 1, True)]),
                self._branch(f"{name}_3x3", bottom, three),
                self._pooled(name, bottom, pooled),
            ],
        )

    def _smaller(self, name: str, bottom: str, first: list[Step], second: list[Step]) -> str:
        return self._net.concat(
            name,
            [
                self._branch(f"{name}_first", bottom, first),
                self._branch(f"{name}_second", bottom, second),
                self._net.pool(f"{name}_pool", bottom, "MAX", 3, 2),
            ],
        )

    def _factored(self, name: str, bottom: str, inner: int) -> str:
        lying: Size = (1, 7)
        standing: Size = (7, 1)
        sizes = [(inner, standing), (inner, lying), (inner, standing), (192, lying)]
        double: list[Step] = [(inner, 1, 1, True), *((n, size, 1, True) for n, size in sizes)]
        single: list[Step] = [
            (inner, 1, 1, True),
            (inner, lying, 1, True),
            (192, standing, 1, True),
        ]
        return self._net.concat(
            name,
            [
                self._branch(f"{name}_1x1", bottom, [(192, 1, 1, True)]),
                self._branch(f"{name}_7x7", bottom, single),
                self._branch(f"{name}_double", bottom, double),
                self._pooled(name, bottom, 192),
            ],
        )

    def _wide(self, name: str, bottom: str) -> str:
        single = self._branch(f"{name}_3x3", bottom, [(384, 1, 1, True)])
        double = self._branch(f"{name}_double", bottom, [(448, 1, 1, True), (384, 3, 1, True)])
        parts = [self._branch(f"{name}_1x1", bottom, [(320, 1, 1, True)])]
        for at, side in (("3x3", single), ("double", double)):
            for kernel, tail in (((1, 3), "lying"), ((3, 1), "standing")):
                parts.append(self._branch(f"{name}_{at}_{tail}", side, [(384, kernel, 1, True)]))
        return self._net.concat(name, [*parts, self._pooled(name, bottom, 192)])
