"""The syntax trees of Python files, each parsed once."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path


@cache
def tree_of(path: Path) -> ast.Module:
    """Return the tree of a file; whoever asks leaves it as it is."""
    return ast.parse(path.read_text())
