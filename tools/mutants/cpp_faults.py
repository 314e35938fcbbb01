"""Small faults in C++ code, found by its tokens, as clang-format lays them out."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tools.mutants.mutant import Mutant

# With spaces on both sides `<` is a comparison and `*` a product, not a template or a pointer.
_SWAPS = {
    "<": "<=",
    "<=": "<",
    ">": ">=",
    ">=": ">",
    "==": "!=",
    "!=": "==",
    "&&": "||",
    "||": "&&",
    "+": "-",
    "-": "+",
    "+=": "-=",
    "true": "false",
    "false": "true",
}
_OPERATOR = re.compile(r"(?<= )(<=|>=|==|!=|&&|\|\||\+=|<|>|\+|-)(?= )")
_WORD = re.compile(r"\b(true|false)\b")
_NUMBER = re.compile(r"(?<![\w.'\"])(\d+)(?![\w.'])")
# A call whose result nobody uses, on a line of its own.
_CALL = re.compile(r"^\s+((?:\w+(?:\.|->|::))*\w+\([^;]*\);)$")
# Text and comments say nothing that a test could notice; so do checks at compile time.
_IGNORED = re.compile(r'"(?:[^"\\]|\\.)*"|//.*$')
_SKIPPED = re.compile(r"^\s*(#|static_assert|template|using |namespace |//)")


def mutants_of(file: str, source: bytes) -> Iterator[Mutant]:
    """All faults of a file."""
    start = 0
    for number, raw in enumerate(source.splitlines(keepends=True), 1):
        line = raw.decode()
        code = _IGNORED.sub(lambda match: " " * len(match.group()), line.rstrip("\n"))
        if line.isascii() and not _SKIPPED.match(line):
            for first, last, text in _faults(code):
                yield Mutant(file, number, start + first, start + last, text)
        start += len(raw)


def _faults(code: str) -> Iterator[tuple[int, int, str]]:
    for pattern in (_OPERATOR, _WORD):
        for match in pattern.finditer(code):
            yield match.start(1), match.end(1), _SWAPS[match.group(1)]
    for match in _NUMBER.finditer(code):
        yield match.start(1), match.end(1), str(int(match.group(1)) + 1)
    if match := _CALL.match(code):
        yield match.start(1), match.end(1), ";"
