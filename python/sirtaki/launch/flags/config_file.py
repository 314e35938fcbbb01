"""The YAML file of `--config-file`."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Callable
from pathlib import Path

import yaml

from sirtaki.launch.cores.shares import bind_to
from sirtaki.launch.errors import LaunchError
from sirtaki.launch.flags.options import CONTROLLERS, ROWS, Switch, Value
from sirtaki.rendezvous.words import NO_SHARED_HEAP

_ROWS = {row.key: row for row in ROWS}
_CONTROLLER = "controller"
_BIND_TO = "bind_to"
_KEYS = (*_ROWS, _CONTROLLER, _BIND_TO)


def read_config(path: str, warn: Callable[[str], object]) -> dict[str, Value | bool]:
    """Read the file; returns the values by the name of the flag's attribute.

    warn: called with each unknown key. Raises LaunchError naming the file, the key and the problem.
    """
    try:
        document = yaml.safe_load(Path(path).read_bytes())
    except OSError as error:
        raise LaunchError(f"cannot read the config file {path!r}: {error.strerror}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise LaunchError(f"the config file {path!r} is not valid YAML: {error}") from None
    return config_values(document, f"the config file {path!r}", warn)


def config_values(
    document: object, where: str, warn: Callable[[str], object]
) -> dict[str, Value | bool]:
    """Return the values in the YAML document `where`; see `read_config`."""
    if document is None:
        return {}
    values: dict[str, Value | bool] = {}
    for key, value in _flattened(where, document):
        if key == "shared_heap":
            raise LaunchError(f"{key} in {where} is refused: {NO_SHARED_HEAP}")
        if key not in _KEYS:
            warn(f"{key!r} in {where} is no key, and has no effect{_nearest(key)}")
            continue
        try:
            values[_ROWS[key].dest if key in _ROWS else key] = _converted(key, value)
        except argparse.ArgumentTypeError as error:
            raise LaunchError(f"{key} in {where}: {error}") from None
    return values


def _flattened(where: str, document: object) -> list[tuple[str, object]]:
    """Flatten sections to keys "section.name"."""
    if not isinstance(document, dict):
        raise LaunchError(f"{where} must hold keys and values")
    flat: list[tuple[str, object]] = []
    for section, content in document.items():
        if isinstance(content, dict):
            flat += [(f"{section}.{name}", value) for name, value in content.items()]
        elif content is not None or "." in str(section):
            flat.append((str(section), content))
    return flat


def _nearest(key: str) -> str:
    near = difflib.get_close_matches(key, _KEYS, n=1, cutoff=0.0)
    return f"; did you mean {near[0]!r}?" if near else ""


def _converted(key: str, value: object) -> Value | bool:
    row = _ROWS.get(key)
    if isinstance(row, Switch):
        if not isinstance(value, bool):
            raise argparse.ArgumentTypeError(f"{value!r} is not true or false")
        return value
    if key == _BIND_TO:
        if not isinstance(value, str):
            # YAML reads 1:2 as the number 62.
            raise argparse.ArgumentTypeError(f"{value!r} is not text; put it in quotes")
        return bind_to(value)
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise argparse.ArgumentTypeError(f"{value!r} is not a single value")
    if row is not None:
        return row.convert(str(value))
    if value not in CONTROLLERS:
        raise argparse.ArgumentTypeError(f"{value!r} is not one of {', '.join(CONTROLLERS)}")
    return str(value)
