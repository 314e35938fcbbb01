"""The arguments of `horovodrun` as an object for programs to fill in."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from sirtaki.launch.flags.parser import make_parser


class _HorovodArgs(argparse.Namespace):
    """All flags at their defaults, and one process.

    run_func: called on every rank instead of `command`, with the Python `executable`. use_gloo,
    use_mpi: how the ranks are started. nics: network interfaces, separated by commas.
    """

    run_func: Callable[[], Any] | None = None
    executable: str | None = None
    use_gloo: bool | None = None
    use_mpi: bool | None = None
    use_jsrun: bool | None = None
    nics: str | None = None
    num_proc: int | None = 1

    def __init__(self) -> None:
        flags = vars(make_parser("horovodrun").parse_args([]))
        super().__init__(**{name: value for name, value in flags.items() if name != "num_proc"})
