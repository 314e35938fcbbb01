"""Cells of a notebook: the IPython magic that reads them, and their execution on a rank."""

from __future__ import annotations

import argparse
import ast
import builtins
import shlex
import symtable
from collections.abc import Mapping
from typing import Any

from sirtaki import shipped
from sirtaki.launch.api import run

FILE = "<%%sirtaki cell>"


def named(code: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that the code names and that can be sent to it.

    Args:
        code: Python source.
        values: The notebook's variables.

    Raises:
        SyntaxError: The code is not Python.
    """
    top = symtable.symtable(code, FILE, "exec")
    names = {s.get_name() for s in top.get_symbols() if not s.is_imported()}
    inner = list(top.get_children())
    while inner:
        table = inner.pop()
        names |= {s.get_name() for s in table.get_symbols() if s.is_global()}
        inner += table.get_children()
    bound = {s.get_name() for s in top.get_symbols() if s.is_assigned() or s.is_imported()}
    found = {n: values[n] for n in names & values.keys() if not hasattr(builtins, n)}
    # Names that the cell assigns may be new there, so old values that cannot be sent are omitted.
    return {n: value for n, value in found.items() if _travels(value) or n not in bound}


def _travels(value: Any) -> bool:
    try:
        shipped.dumps(value)
    except Exception:
        return False
    return True


def run_cell(code: str, values: dict[str, Any]) -> Any:
    """Run a cell's code; return the value of its last line, None unless it is an expression."""
    shipped.remember({FILE: code})
    tree = ast.parse(code, FILE)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    space = {"__name__": "__main__", "__builtins__": builtins, **values}
    exec(compile(tree, FILE, "exec"), space)
    if last is None:
        return None
    assert isinstance(last, ast.Expr)
    return eval(compile(ast.Expression(last.value), FILE, "eval"), space)


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
