"""The texts of all errors in the sources, with … where a value is put in."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

_OURS = (
    "Broken",
    "Busy",
    "Exception",
    "HostsUpdatedInterrupt",
    "NoAnswer",
    "SystemExit",
    "UnknownJob",
    "Verdict",
    "_break_off",
    "_fail",
    "_give_up",
    "error",
)
_CPP = re.compile(
    r"(?:\bError\s*\(\s*(?:ErrorCode::\w+|code)\s*,|\b(?:invalid|refuse|Lie|Broken|refused)\s*\("
    r"|\bnb::(?:value|type)_error\s*\(|\.because\s*\()"
)
_LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"')


@cache
def texts() -> dict[str, str]:
    """Return each text, and the file it is in."""
    found: dict[str, str] = {}
    for folder, suffixes in (("python", (".py",)), ("cpp", (".cpp", ".h"))):
        for file in sorted((ROOT / folder).rglob("*")):
            if file.suffix in suffixes:
                source = file.read_text()
                of_file = _of_python(source) if suffixes == (".py",) else _of_cpp(source)
                for text in of_file:
                    text = re.sub("^sirtaki[a-z ]*: error: ", "", text)
                    if says_something(text):
                        found.setdefault(text, str(file.relative_to(ROOT)))
    return found


def literals() -> str:
    """Return all sources, a string literal of several lines put together."""
    files = [f for end in ("py", "cpp", "h") for f in ROOT.glob(f"[pc][yp]*/**/*.{end}")]
    joined = "\n".join(file.read_text() for file in sorted(files))
    return re.sub(r'"\s+(?:\w\b)?"', "", joined).replace('\\"', '"')


def says_something(text: str) -> bool:
    """Whether a text has words of its own, and does not only pass on another."""
    words = re.findall(r"[A-Za-z_]{2,}", text)
    return len([word for word in words if word not in ("host", "on", "rank")]) > 1


def _of_python(source: str) -> Iterator[str]:
    tree = ast.parse(source)
    constants = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    nodes = list(ast.walk(tree))
    functions = {node.name: node for node in nodes if isinstance(node, ast.FunctionDef)}
    raised = {node.exc for node in nodes if isinstance(node, ast.Raise) and node.exc is not None}
    for node in nodes:
        if isinstance(node, ast.Call) and (node in raised or _makes_an_error(node.func)):
            for argument in node.args:
                yield from _texts_of(argument, constants, functions)
        elif isinstance(node, ast.Call) and _prints_an_error(node):
            yield from _texts_of(node.args[0], constants, functions)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "refused":
            for argument in node.args[1:2]:
                yield from _texts_of(argument, constants, functions)


def _makes_an_error(function: ast.expr) -> bool:
    name = ast.unparse(function).rsplit(".", 1)[-1]
    return name in _OURS or name.endswith("Error")


def _prints_an_error(call: ast.Call) -> bool:
    text = ast.unparse(call)
    return text.startswith("print(") and "sys.stderr" in text and "error:" in text


def _texts_of(
    node: ast.expr, constants: dict[str, ast.expr], functions: dict[str, ast.FunctionDef]
) -> Iterable[str]:
    """What an argument may say: every branch, constants and what functions beside it return."""
    if isinstance(node, ast.IfExp):
        yield from _texts_of(node.body, constants, functions)
        yield from _texts_of(node.orelse, constants, functions)
    elif isinstance(node, ast.Call):
        name = ast.unparse(node.func).rsplit(".", 1)[-1]
        if name == "format" and isinstance(node.func, ast.Attribute):
            yield from _texts_of(node.func.value, constants, functions)
        elif name in functions:
            for each in ast.walk(functions[name]):
                if isinstance(each, ast.Return) and each.value is not None:
                    yield from _texts_of(each.value, constants, {})
    elif text := _text(node, constants):
        yield " ".join(text.split())


def _text(node: ast.expr, constants: dict[str, ast.expr]) -> str:
    """The fixed words of an expression, "" where there are none."""
    if isinstance(node, ast.Constant):
        return re.sub(r"\{\w*\}", "…", node.value) if isinstance(node.value, str) else ""
    if isinstance(node, ast.Name) and node.id in constants:
        return _text(constants[node.id], {})
    if isinstance(node, ast.FormattedValue):
        return _text(node.value, constants) if isinstance(node.value, ast.Name) else ""
    parts: list[ast.expr] = []
    if isinstance(node, ast.JoinedStr):
        parts = node.values
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        parts = [node.left, node.right]
    words = [_text(part, constants) for part in parts]
    return "".join(word or "…" for word in words) if any(words) else ""


def _of_cpp(source: str) -> Iterator[str]:
    for match in _CPP.finditer(source):
        call = _to_the_end(source[match.end() :])
        if _LITERAL.search(call):
            yield _words(call)


def _to_the_end(source: str) -> str:
    """An argument list up to the parenthesis that closes it."""
    depth, at = 1, 0
    while depth and at < len(source):
        if source[at] == '"':
            found = _LITERAL.match(source, at)
            at = found.end() if found else at + 1
            continue
        depth += {"(": 1, ")": -1}.get(source[at], 0)
        at += 1
    return source[: at - 1]


def _words(call: str) -> str:
    words, at = "", 0
    for match in _LITERAL.finditer(call):
        words += "…" if call[at : match.start()].strip(" \n+,") else ""
        words += match[1].replace('\\"', '"')
        at = match.end()
    return re.sub(r"…+", "…", " ".join(words.split()))
