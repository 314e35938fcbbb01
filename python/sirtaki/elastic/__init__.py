"""Elastic training for all frameworks: states, and the loop that survives lost processes."""

from sirtaki.core.elastic import note_checkpoint
from sirtaki.core.errors import HostsUpdatedInterrupt
from sirtaki.elastic.run import run, run_fn
from sirtaki.elastic.seeds import sample_seed
from sirtaki.elastic.state import ObjectState, State

__all__ = [
    "HostsUpdatedInterrupt",
    "ObjectState",
    "State",
    "note_checkpoint",
    "run",
    "run_fn",
    "sample_seed",
]
