"""The compatible Horovod version; loads nothing, so that launcher and doctor can use it."""

from __future__ import annotations

from pathlib import Path

import sirtaki

# Horovod's version; libraries compare it before they use a feature.
HOROVOD_VERSION = "0.28.1"


def both_versions() -> str:
    """Return the line that explains why there are two versions."""
    return f"(the interface of Horovod {HOROVOD_VERSION}, by Sirtaki {sirtaki.__version__})"


def second_owner_of_horovod(folder: Path) -> str | None:
    """Return advice if Horovod itself is also installed in `folder`, else None.

    It only looks at names: this runs at every import of `horovod`, and importlib.metadata would
    take longer than the rest of it.
    """
    for path in folder.glob("horovod-*"):
        version = path.stem.split("-")[1]
        if path.suffix in (".dist-info", ".egg-info") and not version.endswith("+sirtaki"):
            return (
                f"two packages own the name horovod in {folder}: Sirtaki and Horovod {version}. "
                "Each has overwritten files of the other. Keep one: `pip uninstall sirtaki "
                "horovod`, then install the one that you want"
            )
    return None
