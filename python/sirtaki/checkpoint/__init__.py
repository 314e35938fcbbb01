"""Checkpoints on disk, whatever the framework; see `sirtaki.torch.checkpoint` and its siblings."""

from sirtaki.checkpoint.codec import Codec
from sirtaki.checkpoint.errors import CheckpointError
from sirtaki.checkpoint.folder import Checkpoint
from sirtaki.checkpoint.saving import Checkpoints

__all__ = ["Checkpoint", "CheckpointError", "Checkpoints", "Codec"]
