"""The base class of layers written in Python."""

from __future__ import annotations

from typing import Any

from sirtaki_caffe.net.array_blob import ArrayBlob


class Layer:
    """A layer of type `Python`: derived classes define the four methods.

    Attributes:
        param_str: The string from `python_param` of the net file.
        phase: TRAIN or TEST.
        blobs: Its weights; `self.blobs.add_blob(*shape)` in `setup` creates one.
    """

    param_str: str = ""
    phase: int = 0
    blobs: Any = ()

    def setup(self, bottom: list[ArrayBlob], top: list[ArrayBlob]) -> None:
        """Check the bottoms and parameters; called once."""

    def reshape(self, bottom: list[ArrayBlob], top: list[ArrayBlob]) -> None:
        """Set the shapes of the tops from the bottoms; called before each forward."""
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
