"""A planted fault, and how it is shown."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """A fault: `text` in place of the bytes from `start` to `end` of a file."""

    file: str
    line: int
    start: int
    end: int
    text: str

    def planted(self, source: bytes) -> bytes:
        """Return the file's bytes with the fault."""
        return source[: self.start] + self.text.encode() + source[self.end :]


def difference(mutant: Mutant, source: bytes) -> str:
    """The fault as a removed and an added line."""
    first = source.rfind(b"\n", 0, mutant.start) + 1
    last = source.find(b"\n", mutant.end)
    after = source[first : mutant.start] + mutant.text.encode() + source[mutant.end : last]
    before = source[first:last].decode().replace("\n", "\n- ")
    return f"- {before}\n+ {after.decode()}"
