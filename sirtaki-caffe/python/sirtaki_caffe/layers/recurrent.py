"""Recurrent layers: LSTM, RNN, and one step of an LSTM.

Bottoms: x (steps, sequences, …), cont (steps, sequences), which is 0 where a sequence begins and 1
where it continues, optionally x_static (sequences, …), and with `expose_hidden` the hidden state.
Without it a layer keeps its hidden state for the next batch of its process, initially zeros; a
batch with another number of sequences starts with zeros again. No gradient goes to an earlier
batch. Caffe unrolls these layers into nets, whose inner blobs have no counterpart.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F

from sirtaki_caffe.layers.base import Layer, Shape, layer
from sirtaki_caffe.layers.checks import filled, positive


class _Recurrent(Layer):
    """The shared parts of RNN and LSTM."""

    no_gradient_to = (1,)
    #: The number of blobs of the hidden state.
    hidden: ClassVar[int]
    #: The rows of x's weights for each output.
    gates: ClassVar[int]

    def __init__(self, proto: Any, context: Any) -> None:
        super().__init__(proto, context)
        self._parameter = proto.recurrent_param
        self._exposed = self.hidden if self._parameter.expose_hidden else 0
        self._state: list[torch.Tensor] = []

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Check the bottoms and create the weights."""
        self._outputs = positive(self, self._parameter.num_output, "recurrent_param.num_output")
        wanted = 2 + self._exposed
        if len(bottoms) not in (wanted, wanted + 1) or len(self.proto.top) != 1 + self._exposed:
            raise self.error(
                f"it needs {wanted} bottoms, or {wanted + 1} with x_static, and "
                f"{1 + self._exposed} tops"
            )
        self._static = len(bottoms) > wanted
        x = bottoms[0]
        if len(x) < 2:
            raise self.error(f"its first bottom must be (steps, sequences, …), not {list(x)}")
        rows = self.gates * self._outputs
        self._weight((rows, math.prod(x[2:])))
        self._bias(rows)
        if self._static:
            self._weight((rows, math.prod(bottoms[2][1:])))
        self._weight((rows, self._outputs))

    def _weight(self, shape: Shape) -> None:
        filler = self._parameter.weight_filler
        self.params.append(filled(self, shape, filler, "recurrent_param.weight_filler"))

    def _bias(self, rows: int) -> None:
        filler = self._parameter.bias_filler
        self.params.append(filled(self, (rows,), filler, "recurrent_param.bias_filler"))

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """Return (steps, sequences, num_output), and the hidden state's shape if exposed."""
        x, cont = bottoms[:2]
        steps, sequences = x[:2]
        if steps < 1:
            raise self.error("its first bottom has no steps")
        if tuple(cont) != (steps, sequences):
            raise self.error(f"its bottom cont must be {[steps, sequences]}, not {list(cont)}")
        if math.prod(x[2:]) != self.params[0].data.shape[1]:
            raise self.error(
                f"a step of {list(x[2:])} does not fit weights for {self.params[0].data.shape[1]}"
            )
        if self._static and (
            bottoms[2][0] != sequences or math.prod(bottoms[2][1:]) != self.params[2].data.shape[1]
        ):
            raise self.error(
                f"its bottom x_static {list(bottoms[2])} does not fit {sequences} sequences and "
                f"weights for {self.params[2].data.shape[1]}"
            )
        state = (1, sequences, self._outputs)
        for given in bottoms[len(bottoms) - self._exposed :]:
            if tuple(given) != state:
                raise self.error(f"a hidden state must be {list(state)}, not {list(given)}")
        return [(steps, sequences, self._outputs), *[state] * self._exposed]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """See the module."""
        x, cont = bottoms[:2]
        sums = F.linear(x.flatten(2) if x.dim() > 2 else x[..., None], *self._of_x())
        if self._static:
            sums = sums + F.linear(bottoms[2].flatten(1), self.params[2].data)
        state = [given[0] for given in bottoms[len(bottoms) - self._exposed :]]
        if not self._exposed:
            state = self._state
            if not state or state[0].shape[0] != x.shape[1]:
                state = [x.new_zeros(x.shape[1], self._outputs) for _ in range(self.hidden)]
        outputs = []
        for step, going_on in zip(sums.unbind(), cont[..., None].unbind(), strict=True):
            state = self.step(step, going_on, state)
            outputs.append(state[0])
        if self._exposed:
            return [self.output(torch.stack(outputs)), *(kept[None] for kept in state)]
        self._state = [kept.detach() for kept in state]
        return [self.output(torch.stack(outputs))]

    def _of_x(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self.params[0].data, self.params[1].data

    @property
    def of_hidden(self) -> torch.Tensor:
        """Return the weights of the hidden state."""
        return self.params[3 if self._static else 2].data

    @abc.abstractmethod
    def step(
        self, sums: torch.Tensor, cont: torch.Tensor, state: list[torch.Tensor]
    ) -> list[torch.Tensor]:
        """Return the next state, from x's part of the sums."""

    def output(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the first top, from the first blob of the state at all steps."""
        return hidden


@layer("LSTM")
class LSTM(_Recurrent):
    """h = o tanh(c) and c = cont f c' + i g, with gates of x and h' in the order i, f, o, g.

    Blobs: W_xc, b_c, W_xc_static if there is x_static, W_hc. The state is h, c.
    """

    bottoms = (2, 5)
    tops = (1, 3)
    hidden = 2
    gates = 4

    def step(
        self, sums: torch.Tensor, cont: torch.Tensor, state: list[torch.Tensor]
    ) -> list[torch.Tensor]:
        """See the class."""
        h, c = state
        c, h = _unit(c, sums + F.linear(h * cont, self.of_hidden), cont)
        return [h, c]


@layer("RNN")
class RNN(_Recurrent):
    """h = tanh(W_hh cont h' + W_xh x + b_h), and the top is tanh(W_ho h + b_o).

    Blobs: W_xh, b_h, W_xh_static if there is x_static, W_hh, W_ho, b_o. The state is h.
    """

    bottoms = (2, 4)
    tops = (1, 2)
    hidden = 1
    gates = 1

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Check the bottoms and create the weights."""
        super().setup(bottoms)
        self._weight((self._outputs, self._outputs))
        self._bias(self._outputs)

    def step(
        self, sums: torch.Tensor, cont: torch.Tensor, state: list[torch.Tensor]
    ) -> list[torch.Tensor]:
        """See the class."""
        return [torch.tanh(sums + F.linear(state[0] * cont, self.of_hidden))]

    def output(self, hidden: torch.Tensor) -> torch.Tensor:
        """See the class."""
        return torch.tanh(F.linear(hidden, self.params[-2].data, self.params[-1].data))


@layer("LSTMUnit")
class LSTMUnit(Layer):
    """One step: from c' (1, sequences, D), gates (1, sequences, 4 D) and cont to c and h."""

    bottoms = (3, 3)
    tops = (2, 2)
    no_gradient_to = (2,)

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """Return the shapes of c'."""
        c, gates, cont = bottoms
        if len(c) != 3 or c[0] != 1 or tuple(gates) != (1, c[1], 4 * c[2]):
            raise self.error(
                "its bottoms 0 and 1 must be (1, sequences, D) and (1, sequences, 4 D), not "
                f"{list(c)} and {list(gates)}"
            )
        if tuple(cont) != (1, c[1]):
            raise self.error(f"its bottom cont must be {[1, c[1]]}, not {list(cont)}")
        return [c, c]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """See the class."""
        return list(_unit(bottoms[0], bottoms[1], bottoms[2][..., None]))


def _unit(
    c: torch.Tensor, gates: torch.Tensor, cont: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the next c and h."""
    size = c.shape[-1]
    i, f, o = torch.sigmoid(gates[..., : 3 * size]).split(size, -1)
    g = torch.tanh(gates[..., 3 * size :])
    c = cont * f * c + i * g
    return c, o * torch.tanh(c)
