"""What the reference in docs/ says of the public names."""

from __future__ import annotations

import inspect
import re
from types import ModuleType

from tests.pages import DOCS

# Functions that raise nothing, whatever they are given.
NEVER_FAIL = ("check_num_rank_power_of_2", "gpu_available", "refs_to_vars", "vars_to_refs")


def entries() -> set[str]:
    """The names that have an entry in the reference, as users type them."""
    pages = "".join(path.read_text() for path in (DOCS / "reference" / "api").glob("*.md"))
    return set(re.findall(r"^ *(?:\.\. [\w:]+:: )?(sirtaki\.[\w.]+)", pages, re.MULTILINE))


def gaps(module: ModuleType) -> list[str]:
    """What the reference does not say of a framework's public names."""
    found, known = [], entries()
    for name in sorted({each for each in module.__all__ if not each.startswith("_")}):
        value = getattr(module, name)
        if f"{module.__name__}.{name}" not in known:
            found.append(f"{name}: no entry")
        if inspect.isfunction(value):
            text = inspect.getdoc(value) or ""
            arguments = re.findall(r"^ {4}(\w[\w, ]*):", text, re.MULTILINE)
            described = {word for line in arguments for word in line.split(", ")}
            missing = inspect.signature(value).parameters.keys() - described
            found += [f"{name}: {parameter} is not described" for parameter in sorted(missing)]
            if inspect.signature(value).parameters and name not in NEVER_FAIL:
                found += [] if "Raises:" in text else [f"{name}: no errors"]
    return found
