"""A writer of nets as text, which keeps count of shapes and learnable parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence

Shape = tuple[int, ...]


class Writer:
    """A net that is being written.

    Args:
        name: Its name.
        data: Where its images come from: "dummy" for DummyData, "lmdb" for Data layers of both
            phases, "fed" for an Input layer, "deploy" for one behind which the net has no losses.
        batch: How many of them are a batch.
        size: Of the images, instead of the one that the net was published for; 0: that one.
    """

    def __init__(self, name: str, data: str = "dummy", batch: int = 1, size: int = 0) -> None:
        self._parts = [f'name: "{name}"']
        self._data = data
        self._batch = batch
        self._size = size
        self.shapes: dict[str, Shape] = {}
        self.parameters = 0
        self._shared: set[str] = set()

    @property
    def text(self) -> str:
        """The net as it stands in a .prototxt."""
        return "\n".join(self._parts) + "\n"

    @property
    def trains(self) -> bool:
        """Whether the net has labels and losses."""
        return self._data != "deploy"

    def layer(
        self, kind: str, name: str, bottoms: Sequence[str], tops: Sequence[str], body: str = ""
    ) -> str:
        """Any layer; gives its first top."""
        lines = [f'bottom: "{each}"' for each in bottoms] + [f'top: "{each}"' for each in tops]
        self._parts.append(
            f'layer {{\n  name: "{name}"\n  type: "{kind}"\n'
            + "".join(
                f"  {line.strip()}\n" for line in (*lines, *body.splitlines()) if line.strip()
            )
            + "}"
        )
        return tops[0] if tops else ""

    def images(self, channels: int, size: int, classes: int = 1000) -> str:
        """The data, and labels where there are any."""
        size = self._size or size
        self.shapes["data"] = (channels, size, size)
        dims = f"dim: {self._batch} dim: {channels} dim: {size} dim: {size}"
        if self._data == "deploy":
            return self.layer(
                "Input", "data", [], ["data"], f"input_param {{ shape {{ {dims} }} }}"
            )
        self.shapes["label"] = ()
        if self._data == "fed":
            shapes = f"shape {{ {dims} }} shape {{ dim: {self._batch} }}"
            tops = ["data", "label"]
            return self.layer("Input", "data", [], tops, f"input_param {{ {shapes} }}")
        if self._data == "dummy":
            return self.layer(
                *("DummyData", "data", [], ["data", "label"]),
                f"dummy_data_param {{\nshape {{ {dims} }}\nshape {{ dim: {self._batch} }}\n"
                'data_filler { type: "gaussian" std: 1 }\n'
                f'data_filler {{ type: "uniform" min: 0 max: {classes - 1} }}\n}}',
            )
        for phase, source in (("TRAIN", "train"), ("TEST", "val")):
            self.layer(
                *("Data", "data", [], ["data", "label"]),
                f"include {{ phase: {phase} }}\n"
                f"transform_param {{ mirror: {str(phase == 'TRAIN').lower()} crop_size: {size} }}\n"
                f'data_param {{ source: "{source}_lmdb" batch_size: {self._batch} backend: LMDB }}',
            )
        return "data"

    def conv(
        self,
        name: str,
        bottom: str,
        outputs: int,
        kernel: int | tuple[int, int],
        stride: int = 1,
        pad: int | tuple[int, int] = 0,
        group: int = 1,
        bias: bool = True,
        top: str = "",
        share: str = "",
        dilation: int = 1,
    ) -> str:
        """A convolution; `share` begins the names of its params, if they are shared."""
        channels, height, width = self.shapes[bottom]
        kh, kw = kernel if isinstance(kernel, tuple) else (kernel, kernel)
        ph, pw = pad if isinstance(pad, tuple) else (pad, pad)
        if isinstance(kernel, tuple) or isinstance(pad, tuple):
            body = f"num_output: {outputs} kernel_h: {kh} kernel_w: {kw} pad_h: {ph} pad_w: {pw}"
        else:
            body = f"num_output: {outputs} kernel_size: {kernel}" + f" pad: {pad}" * (pad > 0)
        body += f" stride: {stride}" * (stride != 1) + f" group: {group}" * (group != 1)
        body += f" dilation: {dilation}" * (dilation != 1) + " bias_term: false" * (not bias)
        count = outputs * (channels // group) * kh * kw + outputs * bias
        top = top or name
        spans = (dilation * (kh - 1) + 1, dilation * (kw - 1) + 1)
        sides = (
            (height + 2 * ph - spans[0]) // stride + 1,
            (width + 2 * pw - spans[1]) // stride + 1,
        )
        self.shapes[top] = (outputs, *sides)
        return self.layer(
            *("Convolution", name, [bottom], [top]),
            self._params(count, bias, share)
            + f'convolution_param {{ {body} weight_filler {{ type: "xavier" }} }}',
        )

    def upsample(
        self, name: str, bottom: str, outputs: int, kernel: int, stride: int, fixed: bool = False
    ) -> str:
        """A Deconvolution without biases; `fixed`: bilinear, and the solver leaves it alone."""
        channels, *sides = self.shapes[bottom]
        self.shapes[name] = (outputs, *((side - 1) * stride + kernel for side in sides))
        body = f"num_output: {outputs} kernel_size: {kernel} stride: {stride} bias_term: false"
        if fixed:
            body += f' group: {outputs} weight_filler {{ type: "bilinear" }}'
        else:
            self.parameters += channels * outputs * kernel**2
            body += ' weight_filler { type: "xavier" }'
        return self.layer(
            *("Deconvolution", name, [bottom], [name]),
            f"param {{ lr_mult: {0 if fixed else 1} }}\nconvolution_param {{ {body} }}",
        )

    def crop(self, name: str, bottom: str, like: str, offset: int) -> str:
        """The part of a blob, from an offset on, that has the height and width of another."""
        self.shapes[name] = (self.shapes[bottom][0], *self.shapes[like][1:])
        body = f"crop_param {{ axis: 2 offset: {offset} }}"
        return self.layer("Crop", name, [bottom, like], [name], body)

    def input(self, name: str, *shape: int) -> str:
        """A blob that whoever runs the net fills, of a whole batch."""
        self.shapes[name] = shape[1:]
        dims = " ".join(f"dim: {size}" for size in shape)
        return self.layer("Input", name, [], [name], f"input_param {{ shape {{ {dims} }} }}")

    def full(self, name: str, bottom: str, outputs: int, share: str = "", top: str = "") -> str:
        """An inner product; `share` begins the names of its params, if they are shared."""
        top = top or name
        self.shapes[top] = (outputs,)
        return self.layer(
            *("InnerProduct", name, [bottom], [top]),
            self._params(outputs * (math.prod(self.shapes[bottom]) + 1), True, share)
            + f'inner_product_param {{ num_output: {outputs} weight_filler {{ type: "xavier" }} }}',
        )

    def _params(self, count: int, bias: bool, share: str) -> str:
        if share not in self._shared:
            self.parameters += count
        if share:
            self._shared.add(share)
        names = [f'name: "{share}_{each}" ' if share else "" for each in "wb"]
        text = f"param {{ {names[0]}lr_mult: 1 decay_mult: 1 }}\n"
        return text + (f"param {{ {names[1]}lr_mult: 2 decay_mult: 0 }}\n" if bias else "")

    def pool(
        self, name: str, bottom: str, kind: str, kernel: int, stride: int = 1, pad: int = 0
    ) -> str:
        """A pooling; kernel 0: all of the plane."""
        channels, height, width = self.shapes[bottom]
        if kernel == 0:
            self.shapes[name] = (channels, 1, 1)
            body = f"pool: {kind} global_pooling: true"
        else:
            sides = (
                self._pooled(height, kernel, stride, pad),
                self._pooled(width, kernel, stride, pad),
            )
            self.shapes[name] = (channels, *sides)
            body = f"pool: {kind} kernel_size: {kernel} stride: {stride}" + f" pad: {pad}" * (
                pad > 0
            )
        return self.layer("Pooling", name, [bottom], [name], f"pooling_param {{ {body} }}")

    @staticmethod
    def _pooled(size: int, kernel: int, stride: int, pad: int) -> int:
        out = -((size + 2 * pad - kernel) // -stride) + 1
        return out - 1 if pad and (out - 1) * stride >= size + pad else out

    def inplace(self, kind: str, name: str, bottom: str, body: str = "") -> str:
        """A layer that changes its bottom: ReLU, Dropout."""
        return self.layer(kind, name, [bottom], [bottom], body)

    def same(self, kind: str, name: str, bottom: str, body: str = "") -> str:
        """A layer whose top has the shape of its bottom: LRN, Sigmoid."""
        self.shapes[name] = self.shapes[bottom]
        return self.layer(kind, name, [bottom], [name], body)

    def norm(self, name: str, bottom: str, scale: str | None) -> str:
        """A BatchNorm in place, and a Scale of that name behind it; None: BatchNorm is affine."""
        self.parameters += 2 * self.shapes[bottom][0]
        if scale is None:
            self.inplace(
                *("BatchNorm", name, bottom),
                "batch_norm_param { eps: 0.001 filler { value: 1 } bias_filler { value: 0 } }",
            )
            return bottom
        self.inplace("BatchNorm", name, bottom)
        return self.inplace("Scale", scale, bottom, "scale_param { bias_term: true }")

    def concat(self, name: str, bottoms: Sequence[str]) -> str:
        """All channels behind each other."""
        channels = sum(self.shapes[each][0] for each in bottoms)
        self.shapes[name] = (channels, *self.shapes[bottoms[0]][1:])
        return self.layer("Concat", name, bottoms, [name])

    def add(self, name: str, first: str, second: str) -> str:
        """The sum of two blobs."""
        self.shapes[name] = self.shapes[first]
        return self.layer("Eltwise", name, [first, second], [name])

    def classes(
        self, scores: str, name: str = "loss", weight: float = 1, top5: bool = False
    ) -> Writer:
        """The end of the net: loss and accuracy, or probabilities."""
        if not self.trains:
            self.layer("Softmax", "prob", [scores], ["prob"])
            return self
        self.layer(
            *("SoftmaxWithLoss", name, [scores, "label"], [name]),
            f"loss_weight: {weight}" if weight != 1 else "",
        )
        test = "include { phase: TEST }\n"
        self.layer("Accuracy", f"{name}/top-1", [scores, "label"], [f"{name}/top-1"], test)
        if top5:
            body = test + "accuracy_param { top_k: 5 }"
            self.layer("Accuracy", f"{name}/top-5", [scores, "label"], [f"{name}/top-5"], body)
        return self
