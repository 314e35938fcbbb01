"""The schema of Chrome's "Trace Event Format", as its document describes each phase.

Only phases that we write have a branch: an event of another phase is refused, as is a field that
the document does not know.
"""

from __future__ import annotations

from typing import Any

from jsonschema import Draft202012Validator

_TEXT = {"type": "string"}
_NUMBER = {"type": "number"}
_TIME = {"type": "number", "minimum": 0}
# A number or, of ids, a text.
_ID = {"type": ["integer", "string"]}
_WHOLE = {"type": "integer"}
_STACK = {"type": "array", "items": {"type": ["string", "integer"]}}

# Fields that events of every phase may have.
_COMMON: dict[str, Any] = {
    "name": _TEXT,
    "cat": _TEXT,
    "ph": {"type": "string", "minLength": 1, "maxLength": 1},
    "ts": _TIME,
    "tts": _TIME,
    "pid": _WHOLE,
    "tid": _WHOLE,
    "args": {"type": "object"},
    "cname": _TEXT,
}


def _phase(
    phases: list[str], required: list[str], more: dict[str, Any] | None = None
) -> dict[str, Any]:
    return {
        "properties": {**_COMMON, "ph": {"enum": phases}, **(more or {})},
        "required": ["name", "ph", "pid", *required],
        "additionalProperties": False,
    }


def _metadata(name: str, argument: str, kind: dict[str, Any]) -> dict[str, Any]:
    """An event of phase M: its name says which argument it has."""
    arguments = {
        "type": "object",
        "properties": {argument: kind},
        "required": [argument],
        "additionalProperties": False,
    }
    return _phase(["M"], ["args"], {"name": {"const": name}, "args": arguments})


_COUNTED = {"type": "object", "minProperties": 1, "additionalProperties": _NUMBER}
_COMPLETE = {
    "dur": _TIME,
    "tdur": _TIME,
    "sf": _ID,
    "stack": _STACK,
    "esf": _ID,
    "estack": _STACK,
}
_FLOW = {"id": _ID, "scope": _TEXT, "bp": {"const": "e"}}

_EVENT = {
    "type": "object",
    "oneOf": [
        _phase(["X"], ["ts", "dur", "tid", "cat"], _COMPLETE),
        _phase(["C"], ["ts", "args"], {"id": _ID, "args": _COUNTED}),
        _phase(["s", "t", "f"], ["ts", "tid", "cat", "id"], _FLOW),
        _metadata("process_name", "name", _TEXT),
        _metadata("process_labels", "labels", _TEXT),
        _metadata("process_sort_index", "sort_index", _WHOLE),
        _metadata("thread_name", "name", _TEXT),
        _metadata("thread_sort_index", "sort_index", _WHOLE),
    ],
}

# The object format. Whoever writes it may add fields of its own beside these.
SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "traceEvents": {"type": "array", "items": _EVENT},
        "displayTimeUnit": {"enum": ["ms", "ns"]},
        "systemTraceEvents": _TEXT,
        "otherData": {"type": "object"},
        "powerTraceAsString": _TEXT,
        "stackFrames": {"type": "object"},
        "samples": {"type": "array"},
        "controllerTraceDataKey": _TEXT,
    },
    "required": ["traceEvents"],
}

VALIDATOR = Draft202012Validator(SCHEMA)
Draft202012Validator.check_schema(SCHEMA)
