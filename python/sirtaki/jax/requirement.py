"""Refuses a JAX that is too old, before another import fails without an explanation."""

from __future__ import annotations

_NEEDED = "sirtaki.jax needs JAX 0.6 or later: pip install 'jax>=0.6'"

try:
    import jax
except ImportError as error:
    raise ImportError(_NEEDED) from error

if jax.__version_info__ < (0, 6):
    raise ImportError(f"{_NEEDED}; here is JAX {jax.__version__}")
