"""The IPython magic."""

from __future__ import annotations

import argparse
import shlex
from typing import Any

from sirtaki.launch.api import run
from sirtaki.notebook.cell import named, run_cell


class _Parser(argparse.ArgumentParser):
    """Raises an error instead of ending the kernel."""

    def error(self, message: str) -> Any:
        raise ValueError(f"%%sirtaki: {message}\n{self.format_usage()}")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="%%sirtaki", add_help=False)
    parser.add_argument("-np", "--num-proc", type=int, default=1, help="processes (1)")
    parser.add_argument("-H", "--hosts", help="hosts with slots, as of horovodrun")
    parser.add_argument("--verbose", action="store_true", help="whole tracebacks")
    return parser


def load_ipython_extension(shell: Any) -> None:
    """Add the magic `%%sirtaki` to a notebook or an IPython shell.

    Args:
        shell: IPython's shell, which calls this for `%load_ext sirtaki.notebook`.
    """

    def sirtaki(line: str, cell: str) -> list[Any] | None:
        """Run a cell on -np processes; see sirtaki.notebook."""
        given = _parser().parse_args(shlex.split(line))
        code = shell.transform_cell(cell)
        results = run(
            run_cell,
            (code, named(code, shell.user_ns)),
            num_proc=given.num_proc,
            hosts=given.hosts,
            verbose=given.verbose,
        )
        return None if all(result is None for result in results) else results

    shell.register_magic_function(sirtaki, "cell")
