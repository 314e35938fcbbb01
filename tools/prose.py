"""Plain English in the pages and in the docstrings of what users call: `python -m tools.prose`.

A small vocabulary of turns that read like a translation, each with what to write instead, and a
limit on the words of a sentence. Code and quoted messages are left alone.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LONGEST = 45

# What is written, as a regular expression, and what to write instead.
VOCABULARY = {
    r"(?:^|[.;:] )Who\b(?![^.]*\?)": "'If you …', 'Anybody who …', or name the subject",
    r"\b(?:for|to) who\b": "'for those who', 'to clients that'",
    r"(?:^|[.;:] )(?:Idle|Alone) it\b": "begin with the subject: 'An idle rank …'",
    r"\bcosts nothing when idle\b": "'uses no CPU when idle'",
    r"\bbut for\b": "'except for'",
    r"\bas ever\b": "'as before', 'as usual'",
    r"\b(?:and|or) (?:its|their|the) like\b": "'and similar ones', or name them",
    r"\bstands? (?:in|on|behind|below|above|there)\b": "'is in', 'follows', 'is below'",
    r"\bl(?:ies|ie|ay|ain) (?:in|on|where|there|below|beside)\b": "'is in', 'is stored in'",
    r"\bin (?:the|its|their) place of\b|\btakes? the place of\b": "'instead of', 'replaces'",
    r"\bwins? over\b": "'takes precedence over'",
    r"\b(?:is|are) (?:told|said) by\b": "begin with who says it",
    r"\bnothing of (?:that|this|these)\b(?! (?:has|block|was))": "'none of', 'neither … nor'",
    r"\bfor want of\b": "'because … is missing'",
    r"\bis to be (?!continued)\w+": "'has to be', 'must be', or the active voice",
    r"\bwithout a word\b": "'without an error', 'without a message'",
    r"\bwhatever has (?:started|made)\b": "'whichever launcher started'",
    r"\b(?:is|are) told once\b": "'a message says so once'",
    r"\bneed not be \w+ed\b": "'needs no …'",
    r"\bas if nobody had\b": "name what does not change",
    r"\bthat is so\b|\bwhich (?:of these )?is so\b": "'which applies'",
    r"\bof one's own\b": "'of your own'",
    r"\bgives? out\b|\bgiven out\b": "'assigns', 'distributes'",
    r"\bwhat is more\b": "'the rest'",
    r"\bnobody looks at\b|\bnobody can tell\b": "name what happens",
    r"\bso as\b": "'to', 'so that'",
    r"\b(?:hereby|herein|thereof|thereby|whereby|therein|wherein)\b": "plain words",
    r"\butili[sz]e": "'use'",
    r"\bin order to\b": "'to'",
    r"\bplease\b": "leave it out",
    r"\bsimply\b|\bobviously\b|\bof course\b": "leave it out",
}

# Docstrings of what users call.
PUBLIC = (
    "core/facade.py",
    "core/basics.py",
    "core/errors.py",
    "core/operations/objects.py",
    "data",
    "jax",
    "keras",
    "numpy",
    "tensorflow",
    "torch",
)


@dataclass(frozen=True)
class Finding:
    place: str
    words: str
    advice: str

    def __str__(self) -> str:
        return f"{self.place}: {self.words!r}: {self.advice}"


def prose_of(markdown: str) -> Iterator[tuple[int, str]]:
    """The paragraphs of a page with the line where each begins, without code and addresses."""
    paragraph: list[str] = []
    begin, fenced = 1, False
    for number, line in enumerate([*markdown.splitlines(), ""], 1):
        if re.match(r"\s*`{3,}", line):
            fenced = not fenced
            line = ""
        inside = "" if fenced else line.strip()
        apart = not inside or re.match(r"(?:[-*|#>]|\d+\.) ?", inside)
        if apart and paragraph:
            yield begin, " ".join(paragraph)
            paragraph = []
        if inside:
            begin = begin if paragraph else number
            paragraph += [cell.strip() for cell in inside.split("|")] if "|" in inside else [inside]


def bare(text: str) -> str:
    """A text without what is quoted: code, addresses of links, marks."""
    text = re.sub(r"``[^`]+``|`[^`]*`", "code", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"^(?:[-*#>]+|\d+\.) +", "", text.replace("**", "")).strip()


def check(text: str, place: str) -> Iterator[Finding]:
    words = bare(text)
    for pattern, advice in VOCABULARY.items():
        for found in re.finditer(pattern, words, re.IGNORECASE if pattern[1] == "b" else 0):
            yield Finding(place, found.group().strip(" .;:"), advice)
    for sentence in re.split(r"(?<=[.!?:;])\s+|  +", words):
        count = len(sentence.split())
        if count > LONGEST:
            start = " ".join(sentence.split()[:6])
            yield Finding(place, f"{start} …", f"{count} words: say it in two sentences")


def check_page(path: Path) -> Iterator[Finding]:
    for line, text in prose_of(path.read_text()):
        yield from check(text, f"{path.relative_to(ROOT)}:{line}")


def check_docstrings(path: Path) -> Iterator[Finding]:
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        text = ast.get_docstring(node)
        if text is None or getattr(node, "name", "").startswith("_"):
            continue
        line = node.body[0].lineno
        for offset, paragraph in prose_of(text):
            yield from check(paragraph, f"{path.relative_to(ROOT)}:{line + offset - 1}")


def pages() -> list[Path]:
    # Written by a program: the names of an interface.
    made = {ROOT / "docs" / "design" / "api-coverage.md"}
    found = {path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts}
    return [ROOT / "README.md", *sorted(found - made)]


def modules() -> list[Path]:
    package = ROOT / "python" / "sirtaki"
    found = [
        path
        for name in PUBLIC
        for path in (
            (package / name).rglob("*.py") if (package / name).is_dir() else [package / name]
        )
    ]
    return sorted(found)


def main() -> int:
    findings = [each for page in pages() for each in check_page(page)]
    findings += [each for module in modules() for each in check_docstrings(module)]
    for each in findings:
        print(each)
    return int(bool(findings))


if __name__ == "__main__":
    sys.exit(main())
