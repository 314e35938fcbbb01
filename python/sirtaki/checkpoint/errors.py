"""What can be wrong with a checkpoint."""

from __future__ import annotations


class CheckpointError(RuntimeError):
    """A checkpoint cannot be written, is damaged, or is none."""
