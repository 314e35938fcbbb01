"""Checkpoints of a job for any framework; each adapter's module `checkpoint` drives them."""

from sirtaki.checkpoint.framework import Array, Framework
from sirtaki.checkpoint.guards import Guards
from sirtaki.checkpoint.saving import Checkpoints, Loaded
from sirtaki.core.errors import CheckpointError

__all__ = ["Array", "CheckpointError", "Checkpoints", "Framework", "Guards", "Loaded"]
