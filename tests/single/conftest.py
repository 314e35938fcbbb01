"""What all tests of one process have in common."""

from __future__ import annotations

from hypothesis import settings

# A machine that does other things too is no failure.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")
