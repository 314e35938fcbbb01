"""Small faults in Python code: an operator swapped, a constant changed, a statement left out."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tools.mutants.mutant import Mutant

_SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
}


def faults(node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST | str]]:
    """Parts of a node, or the node, with what to put in their place: another node, or text."""
    match node:
        case ast.Compare(left, [operator], [right]) if type(operator) in _SWAPS:
            yield node, ast.Compare(left, [_SWAPS[type(operator)]()], [right])
        case ast.BoolOp(operator, values):
            yield node, ast.BoolOp(_SWAPS[type(operator)](), values)
        case ast.BinOp(left, operator, right) if type(operator) in _SWAPS:
            yield node, ast.BinOp(left, _SWAPS[type(operator)](), right)
        case ast.UnaryOp(ast.Not(), operand):
            yield node, operand
        case ast.If(test) | ast.IfExp(test) if not isinstance(test, ast.Compare | ast.UnaryOp):
            yield test, ast.UnaryOp(ast.Not(), test)
        case ast.Constant(bool(value)):
            yield node, ast.Constant(not value)
        case ast.Constant(int(value)):
            yield node, ast.Constant(value + 1)
        case ast.Return(value) if value is not None and ast.unparse(value) != "None":
            yield node, "return None"
        case ast.Raise() | ast.AugAssign() | ast.Expr(ast.Call()):
            yield node, "pass"


def in_place(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a node in which a fault changes what the program does."""
    if isinstance(node, ast.keyword) and node.arg == "strict":
        return  # of zip(), a check that holds
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return  # never runs
    skipped = {"annotation", "returns", "decorator_list"}
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            # Python 3.11 does not know where the parts of an f-string are.
            if (
                isinstance(child, ast.AST)
                and name not in skipped
                and not isinstance(child, ast.JoinedStr)
            ):
                yield child


def mutants_of(file: str, source: bytes) -> Iterator[Mutant]:
    """All faults of a file; the line is that of the statement, which is what coverage knows."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def walk(node: ast.AST, line: int) -> Iterator[Mutant]:
        line = node.lineno if isinstance(node, ast.stmt) else line
        for old, fault in faults(node):
            start = starts[old.lineno - 1] + old.col_offset
            end = starts[old.end_lineno - 1] + old.end_col_offset
            text = fault if isinstance(fault, str) else f"({ast.unparse(fault)})"
            yield Mutant(file, line, start, end, text)
        for child in in_place(node):
            yield from walk(child, line)

    yield from walk(ast.parse(source), 0)
