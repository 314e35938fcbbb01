"""A net as the source of a PyTorch module, and its state."""

from __future__ import annotations

import keyword
import re

import torch
from torch import nn

from sirtaki_caffe.convert import expressions, modules
from sirtaki_caffe.convert.piece import Piece, Place, emitter_of
from sirtaki_caffe.layers.base import Param
from sirtaki_caffe.net.net import Net
from sirtaki_caffe.net.step import Step

_DATA = {"Input", "Data", "ImageData", "HDF5Data", "MemoryData", "DummyData", "WindowData"}
_LEFT_OUT = {"Accuracy", "Silence", "HDF5Output"}
_NAMES = {"self", "torch", "F", "nn"}

del expressions  # imported to register its layers, like those of `modules`


class ModuleWriter:
    """Writes a net as a module.

    Data layers become arguments of `forward`. Losses, Accuracy and layers without tops are omitted.
    All blobs that are then unread are returned.

    Args:
        net: A net of phase TEST.

    Raises:
        LayerError: A layer's type is not supported.
    """

    def __init__(self, net: Net) -> None:
        self.net = net
        self.state: dict[str, torch.Tensor] = {}
        self.class_name = _identifier(net.proto.name or "Net", set())
        self._init: list[str] = []
        self._forward: list[str] = []
        self._variables: dict[str, str] = {}  # of blobs
        self._taken = set(_NAMES)
        self._attributes = set(dir(nn.Module()))
        self._arguments: dict[str, bool] = {}  # whether it is used
        self._unread: dict[str, None] = {}
        self._owners: dict[int, str] = {}
        steps = [step for step in net.steps if not _is_left_out(step)]
        self._folded: set[int] = set()
        for index, step in enumerate(steps):
            if index not in self._folded:
                self._add(step, index, steps)

    def text(self) -> str:
        """Return the module's source."""
        arguments = [name for name, used in self._arguments.items() if used]
        outputs = [name for name in self._unread if self._arguments.get(name, True)]
        result = outputs[0] if len(outputs) == 1 else f"({', '.join(outputs)})"
        lines = [
            f'"""{self.class_name}, a net of Caffe\'s as a module of PyTorch\'s."""',
            "",
            "import torch",
            "import torch.nn.functional as F",
            "from torch import nn",
            "",
            "",
            f"class {self.class_name}(nn.Module):",
            "    def __init__(self):",
            "        super().__init__()",
            *(f"        {line}" for line in self._init),
            "",
            f"    def forward({', '.join(['self', *arguments])}):",
            *(f"        {line}" for line in self._forward),
            f"        return {result}",
        ]
        uses = "\n".join(lines[7:])
        lines = [line for line in lines if "nn.functional" not in line or "F." in uses]
        return "\n".join(lines) + "\n"

    def _add(self, step: Step, index: int, steps: list[Step]) -> None:
        kind = step.layer.proto.type
        if kind in _DATA:
            for top in step.tops:
                self._arguments[self._variable(top.name)] = False
                self._unread[self._variables[top.name]] = None
            return
        names = [self._variables[bottom.name] for bottom in step.bottoms]
        if kind == "Split":
            for top in step.tops:
                self._variables[top.name] = names[0]
            return
        for name in names:
            self._unread.pop(name, None)
            if name in self._arguments:
                self._arguments[name] = True
        tops = step.tops
        attribute = self._attribute(step.layer.name)
        shapes = [bottom.shape for bottom in step.bottoms]
        top_shapes = [top.shape for top in tops]
        place = Place(step.layer, names, shapes, top_shapes, f"self.{attribute}")
        scale = _scale_behind(step, index, steps)
        if scale is not None:
            blobs = [param.data.detach() for param in scale.layer.params]
            piece, tops = modules.normalised(place, blobs), scale.tops
            self._folded.add(index + 1)
        else:
            piece = self._piece(place)
        self._write(piece, attribute)
        targets = [self._variable(top.name) for top in tops]
        self._forward.append(f"{', '.join(targets)} = {piece.call}")
        self._unread.update(dict.fromkeys(targets))

    def _piece(self, place: Place) -> Piece:
        emitter = emitter_of(place.layer.proto.type)
        if emitter is None:
            raise place.layer.error(
                "this type of layer is not converted to PyTorch: end the net before it"
            )
        return emitter(place)

    def _write(self, piece: Piece, attribute: str) -> None:
        if piece.module is None:
            return
        self._init.append(f"self.{attribute} = {piece.module}")
        for name, param in piece.params.items():
            self._write_param(piece, attribute, name, param)
        for name, tensor in piece.tensors.items():
            self.state[f"{attribute}.{name}"] = tensor.clone().cpu()

    def _write_param(self, piece: Piece, attribute: str, name: str, param: Param) -> None:
        """Write a param, or the param of another module that it shares."""
        values = param.data.detach().cpu()
        self.state[f"{attribute}.{name}"] = values.clone(memory_format=torch.contiguous_format)
        in_dict = piece.module == "nn.ParameterDict()"
        own = f'self.{attribute}["{name}"]' if in_dict else f"self.{attribute}.{name}"
        owner = self._owners.get(id(param))
        if owner is None:
            self._owners[id(param)] = own
            if in_dict:
                shape = ", ".join(str(size) for size in param.data.shape)
                self._init.append(f"{own} = nn.Parameter(torch.zeros({shape or '()'}))")
        else:
            self._init.append(f"{own} = {owner}")

    def _variable(self, blob: str) -> str:
        """Return the variable of a blob; an in-place layer assigns to it again."""
        if blob not in self._variables:
            self._variables[blob] = _identifier(blob, self._taken)
            self._taken.add(self._variables[blob])
        return self._variables[blob]

    def _attribute(self, layer: str) -> str:
        name = _identifier(layer, self._attributes)
        self._attributes.add(name)
        return name


def _identifier(name: str, taken: set[str]) -> str:
    """Return a name as a Python identifier that is not taken."""
    found = re.sub(r"[^0-9A-Za-z_]", "_", name).strip("_") or "x"
    if found[0].isdigit() or keyword.iskeyword(found):
        found = f"_{found}" if found[0].isdigit() else f"{found}_"
    unique, count = found, 2
    while unique in taken:
        unique, count = f"{found}_{count}", count + 1
    return unique


def _is_left_out(step: Step) -> bool:
    kind = step.layer.proto.type
    return step.layer.is_loss or kind in _LEFT_OUT


def _scale_behind(step: Step, index: int, steps: list[Step]) -> Step | None:
    """Return the Scale that is the only reader of a BatchNorm, channel by channel, or None."""
    if step.layer.proto.type not in modules.NORMS or len(step.layer.params) != 3:
        return None
    if index + 1 == len(steps) or step.layer.proto.batch_norm_param.relu:
        return None
    after = steps[index + 1]
    proto = after.layer.proto
    fits = (
        proto.type == "Scale"
        and len(after.bottoms) == 1
        and after.bottoms[0] is step.tops[0]
        and proto.scale_param.axis in (1, 1 - len(step.tops[0].shape))
        and after.layer.params[0].data.dim() == 1
        and len({id(p) for p in after.layer.params}) == len(after.layer.params)
    )
    return after if fits else None
