"""Matrix products and row look-ups."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F

from sirtaki_caffe.layers.base import Layer, Shape, layer
from sirtaki_caffe.layers.checks import axis_in, positive, weights


@layer("InnerProduct")
class InnerProduct(Layer):
    """Multiplies everything from `axis` on, as one vector, by a matrix, and adds a bias."""

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Create the matrix, transposed if requested, and the bias."""
        parameter = self.proto.inner_product_param
        outputs = positive(self, parameter.num_output, "inner_product_param.num_output")
        self._outputs = outputs
        self._axis = axis_in(self, parameter.axis, len(bottoms[0]), "inner_product_param.axis")
        self._inputs = math.prod(bottoms[0][self._axis :])
        self._transpose = parameter.transpose
        shape = (self._inputs, outputs) if self._transpose else (outputs, self._inputs)
        self.params = weights(self, shape, outputs, "inner_product_param")

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """Return the axes before `axis`, and num_output."""
        inputs = math.prod(bottoms[0][self._axis :])
        if inputs != self._inputs:
            raise self.error(
                f"its bottom has {inputs} values from axis {self._axis} on, but its weights are "
                f"for {self._inputs}"
            )
        return [(*bottoms[0][: self._axis], self._outputs)]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the product, with Intel's fused ReLU if requested."""
        x = bottoms[0]
        if self._axis != x.dim() - 1:
            x = x.flatten(self._axis)
        weight = self.params[0].data
        bias = self.params[1].data if len(self.params) > 1 else None
        y = F.linear(x, weight.t() if self._transpose else weight, bias)
        if self.proto.inner_product_param.relu:
            y = F.leaky_relu(y, self.proto.inner_product_param.negative_slope)
        return [y]


@layer("Embed")
class Embed(Layer):
    """Rows of a matrix, by the numbers in the bottom; a bias is added."""

    no_gradient_to = (0,)

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Create the matrix and the bias."""
        parameter = self.proto.embed_param
        outputs = positive(self, parameter.num_output, "embed_param.num_output")
        inputs = positive(self, parameter.input_dim, "embed_param.input_dim")
        self.params = weights(self, (inputs, outputs), outputs, "embed_param")

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """Return the bottom's axes, and num_output."""
        return [(*bottoms[0], int(self.proto.embed_param.num_output))]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the rows."""
        try:
            rows = F.embedding(bottoms[0].long(), self.params[0].data)
        except IndexError as error:
            raise self.error(
                "its bottom holds numbers outside 0 to embed_param.input_dim - 1, "
                f"{self.proto.embed_param.input_dim - 1}"
            ) from error
        return [rows + self.params[1].data if len(self.params) > 1 else rows]
