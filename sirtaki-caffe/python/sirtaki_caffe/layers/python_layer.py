"""The layer type `Python`: a user's class, on NumPy blobs."""

from __future__ import annotations

import importlib
import math
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from sirtaki_caffe.errors import LayerError
from sirtaki_caffe.layers.base import Context, Layer, Param, Shape, Share, layer
from sirtaki_caffe.net.array_blob import ArrayBlob, ParamBlob
from sirtaki_caffe.net.blob import Blob


@layer("Python")
class PythonLayer(Layer):
    """Runs `setup`, `reshape`, `forward` and `backward` of the class that `python_param` names.

    The module is searched on Python's path, PYTHONPATH, and in the current directory. A user's
    exception becomes the cause of a LayerError. `share_in_parallel` has no effect here: each
    process has its own layer.

    A top with one number made from several items counts as a mean over them, as in Caffe's own
    example of a loss, since the user's code is opaque.
    """

    bottoms = (0, None)
    tops = (0, None)
    may_be_in_place = True

    def __init__(self, proto: Any, context: Context) -> None:
        super().__init__(proto, context)
        self._bottom: list[Blob] = []
        self._top: list[Blob] = []
        self._user: Any = None

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Create the user's object, and let it create its blobs."""
        dtype = self.context.dtype
        self._bottom = [
            Blob(name, shape, dtype) for name, shape in zip(self.proto.bottom, bottoms, strict=True)
        ]
        self._top = [Blob(name, (), dtype) for name in self.proto.top]
        self._user = self._make()
        self._user.param_str = self.proto.python_param.param_str
        self._user.phase = self.context.phase
        self._user.blobs = ParamBlobs(self.params, dtype)
        self._call("setup", _as_seen(self._bottom), _as_seen(self._top))
        self._call("reshape", _as_seen(self._bottom), _as_seen(self._top))

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """Return the shapes that the user's `reshape` gives the tops."""
        for blob, shape in zip(self._bottom, bottoms, strict=True):
            blob.reshape(shape)
        self._call("reshape", _as_seen(self._bottom), _as_seen(self._top))
        return [top.shape for top in self._top]

    def top_shares(self, tops: Sequence[Shape]) -> list[Share]:
        """Return means for tops with one number; else the user determines the number of items."""
        several = any(bottom.shape[:1] > (1,) for bottom in self._bottom)
        sure = several or bool(self.proto.loss_weight)
        shares = [
            Share.MEAN if not top or (math.prod(top) == 1 and sure) else Share.CHOSEN
            for top in tops
        ]
        if self.context.world.size > 1 and Share.MEAN in shares:
            self.context.log(
                "python_layer.hpp",
                f"Layer {self.name}: a top of one number counts as the mean over the items of its "
                "process; a sum is to be multiplied by sirtaki.torch.size()",
            )
        return shares

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Run the user's `reshape` and `forward`."""
        for blob, values in zip(self._bottom, bottoms, strict=True):
            blob.put(values.detach())
        seen = _as_seen(self._bottom), _as_seen(self._top)
        self._call("reshape", *seen)
        self._call("forward", *seen)
        return [top.data.clone() for top in self._top]

    def before_backward(
        self, bottoms: Sequence[torch.Tensor], tops: Sequence[torch.Tensor]
    ) -> list[torch.Tensor]:
        """Return the contents of the blobs, without running the user's `forward`."""
        for blob, values in zip([*self._bottom, *self._top], [*bottoms, *tops], strict=True):
            blob.put(values.detach())
        return list(tops)

    def backward(
        self,
        bottoms: Sequence[torch.Tensor],
        tops: Sequence[torch.Tensor],
        top_diffs: Sequence[torch.Tensor | None],
        wanted: Sequence[bool],
    ) -> list[torch.Tensor | None]:
        """Run the user's `backward`."""
        for blob, gradient in zip(self._top, top_diffs, strict=True):
            blob.put_diff(gradient)
        self._call("backward", _as_seen(self._top), list(wanted), _as_seen(self._bottom))
        return [
            blob.hold_diff().clone() if wants else None
            for blob, wants in zip(self._bottom, wanted, strict=True)
        ]

    def _make(self) -> Any:
        param = self.proto.python_param
        if not param.module or not param.layer:
            raise self.error("python_param names no module and layer")
        here = os.getcwd()  # noqa: PTH109
        if here not in sys.path:
            sys.path.append(here)
        try:
            return getattr(importlib.import_module(param.module), param.layer)()
        except Exception as error:
            raise self.error(
                f"class '{param.layer}' of module '{param.module}' cannot be made: "
                f"{type(error).__name__}: {error}"
            ) from error

    def _call(self, method: str, *arguments: Any) -> None:
        try:
            getattr(self._user, method)(*arguments)
        except LayerError:
            raise
        except Exception as error:
            raise self.error(f"{method} failed: {type(error).__name__}: {error}") from error


class ParamBlobs:
    """The `blobs` of a Python layer: a list extended by `add_blob`.

    Args:
        params: The layer's params.
        dtype: The type of new blobs.
    """

    def __init__(self, params: list[Param], dtype: torch.dtype) -> None:
        self._params = params
        self._dtype = dtype

    def add_blob(self, *shape: int) -> ParamBlob:
        """Append a new blob of zeros."""
        self._params.append(Param(torch.zeros(shape, dtype=self._dtype)))
        return ParamBlob(self._params[-1])

    def __len__(self) -> int:
        return len(self._params)

    def __getitem__(self, index: int) -> ParamBlob:
        return ParamBlob(self._params[index])

    def __iter__(self) -> Iterator[ParamBlob]:
        return (ParamBlob(param) for param in self._params)


def _as_seen(blobs: Sequence[Blob]) -> list[ArrayBlob]:
    return [ArrayBlob(blob) for blob in blobs]
