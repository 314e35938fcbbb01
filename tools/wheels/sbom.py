"""What a compiled wheel is made of: a bill in CycloneDX's form, and the licences."""

from __future__ import annotations

import json
import re
import uuid
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tools.wheels import zig

_XLA_FFI = Path("third_party/xla_ffi/xla/ffi/api/c_api.h")
_ROBIN_MAP = "ext/robin_map/include/tsl/robin_map.h"


def bill(name: str, release: str, root: Path, nanobind: str) -> str:
    """Return the bill of a compiled wheel, the same text for the same parts.

    Args:
        name: Of the distribution.
        release: Its version.
        root: The source.
        nanobind: The version of nanobind that is compiled into it.
    """
    own = _component(name, release, "Apache-2.0", f"pkg:pypi/{name}@{release}")
    parts = [
        _component("nanobind", nanobind, "BSD-3-Clause", f"pkg:pypi/nanobind@{nanobind}"),
        _component("robin-map", f"as in nanobind {nanobind}", "MIT"),
        _component("xla-ffi", _xla_ffi(root), "Apache-2.0"),
        _component("libc++", zig.clang_version(), "Apache-2.0 WITH LLVM-exception"),
    ]
    compiler = _component("ziglang", version("ziglang"), "MIT", "pkg:pypi/ziglang")
    contents = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": own, "tools": {"components": [compiler]}},
        "components": parts,
        "dependencies": [{"ref": own["bom-ref"], "dependsOn": [one["bom-ref"] for one in parts]}],
    }
    number = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(contents))
    return json.dumps({**contents, "serialNumber": f"urn:uuid:{number}"}, indent=2) + "\n"


def licences(nanobind: Path) -> dict[str, str]:
    """Return the licences of what is compiled in that is not in this repository, by file name.

    Args:
        nanobind: The folder of the installed package.
    """
    (metadata,) = nanobind.parent.glob("nanobind-*.dist-info")
    header = (nanobind / _ROBIN_MAP).read_text()
    comment = header[header.index("/**") + 3 : header.index("*/")]
    return {
        "nanobind.txt": (metadata / "licenses" / "LICENSE").read_text(),
        "robin-map.txt": re.sub(r"^ \* ?", "", comment, flags=re.MULTILINE).strip() + "\n",
    }


def _component(name: str, release: str, licence: str, purl: str = "") -> dict[str, Any]:
    found = {
        "type": "library",
        "bom-ref": name,
        "name": name,
        "version": release,
        "licenses": [{"expression": licence}],
    }
    return {**found, "purl": purl} if purl else found


def _xla_ffi(root: Path) -> str:
    text = (root / _XLA_FFI).read_text()
    return ".".join(re.findall(r"#define XLA_FFI_API_(?:MAJOR|MINOR) (\d+)", text))
