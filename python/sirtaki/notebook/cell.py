"""Execution of a cell's code on a rank."""

from __future__ import annotations

import ast
import builtins
import symtable
from collections.abc import Mapping
from typing import Any

from sirtaki import shipped

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
