"""The frameworks that have an adapter here, as the adapters' folders describe them.

An adapter imports its framework, so its description is a file, `framework.json`.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


class Framework(NamedTuple):
    """A framework, whether it is installed or not.

    Its module, its package and the folder of its adapter have one name.

    Attributes:
        name: Its name in tables.
        install: What scripts that use it need; "" if it is always installed.
        errors: The packages whose exceptions replace ours, and repeat our text.
        backends: The modules of which it needs one; the variable NAME_BACKEND selects it.
    """

    name: str
    install: str = ""
    errors: Sequence[str] = ()
    backends: Sequence[str] = ()


@functools.cache
def frameworks() -> dict[str, Framework]:
    """Return the frameworks by module, in alphabetical order; import none."""
    return {
        file.parent.name: Framework(**json.loads(file.read_text(encoding="utf-8")))
        for file in sorted(Path(__file__).parent.glob("*/framework.json"))
    }
