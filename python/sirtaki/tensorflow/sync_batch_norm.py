"""Keras's layer, where Horovod has it."""

from __future__ import annotations

from sirtaki.keras.sync_batch_norm import SyncBatchNormalization

__all__ = ["SyncBatchNormalization"]
