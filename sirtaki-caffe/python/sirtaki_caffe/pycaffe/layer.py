"""The class that layers written in Python derive from."""

from __future__ import annotations

from typing import Any

from sirtaki_caffe.net.array_blob import ArrayBlob


class Layer:
    """A layer of type `Python`: derive from this and write the four methods.

    Attributes:
        param_str: What `python_param` of the net file hands to it.
        phase: TRAIN or TEST.
        blobs: Its weights; `self.blobs.add_blob(*shape)` in `setup` makes one.
    """

    param_str: str = ""
    phase: int = 0
    blobs: Any = ()

    def setup(self, bottom: list[ArrayBlob], top: list[ArrayBlob]) -> None:
        """Check what it is given; called once."""

    def reshape(self, bottom: list[ArrayBlob], top: list[ArrayBlob]) -> None:
        """Shape the tops by what the bottoms have; called before each forward."""
        raise NotImplementedError(f"{type(self).__name__} has no reshape(bottom, top)")

    def forward(self, bottom: list[ArrayBlob], top: list[ArrayBlob]) -> None:
        """Write the tops' data."""
        raise NotImplementedError(f"{type(self).__name__} has no forward(bottom, top)")

    def backward(
        self, top: list[ArrayBlob], propagate_down: list[bool], bottom: list[ArrayBlob]
    ) -> None:
        """Write the bottoms' diff, and add to the diff of its blobs."""
        raise NotImplementedError(
            f"{type(self).__name__} has no backward(top, propagate_down, bottom)"
        )
