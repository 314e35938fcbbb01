"""The transformations of gradients, by the compressions that choose them."""

from __future__ import annotations

from sirtaki.torch.compression import Compressor, TransformingCompressor
from sirtaki.torch.gradients.powersgd import PowerSGD
from sirtaki.torch.gradients.topk import TopK
from sirtaki.torch.gradients.transformation import Transformation

_KINDS: dict[str, type[PowerSGD | TopK]] = {"powersgd": PowerSGD, "topk": TopK}


def transformation_of(compression: type[Compressor]) -> Transformation | None:
    """Return a new transformation, if this compression is one."""
    if isinstance(compression, type) and issubclass(compression, TransformingCompressor):
        return _KINDS[compression.kind](compression.argument)
    return None
