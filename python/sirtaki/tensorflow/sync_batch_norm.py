"""Keras's layer, for Horovod's module layout."""

from __future__ import annotations

from sirtaki.keras.sync_batch_norm import SyncBatchNormalization

__all__ = ["SyncBatchNormalization"]
