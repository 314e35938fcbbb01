"""States and the loop of elastic training, for any framework."""

from __future__ import annotations

from sirtaki.elastic import ObjectState as ObjectState
from sirtaki.elastic import State as State
from sirtaki.elastic import run_fn as run_fn
