"""What commands say of arguments that are wrong, with suggestions for unknown words."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NoReturn

_UNKNOWN = r"unrecognized arguments: (.+)"
_AMBIGUOUS = r"ambiguous option: (\S+) could match (.+)"
_CHOICE = r"invalid choice: '?(.*?)'? \(choose from (.+)\)"
_NUMBER_OF_PROCESSES = "-np (all processes) or --nproc-per-node (with --nnodes)"
# The names that other launchers use, and words that do not resemble the right one.
_ELSEWHERE = {
    "--env": "-x",
    "--host": "-H",
    "--host-file": "--hostfile",
    "--identity": "-i",
    "--interface": "--network-interface",
    "--key": "-i",
    "--log-dir": "--output-filename",
    "--machinefile": "--hostfile",
    "--nproc": _NUMBER_OF_PROCESSES,
    "--nproc-per-node": _NUMBER_OF_PROCESSES,
    "--nprocs": "-np",
    "--num-processes": "-np",
    "--output": "--output-filename",
    "--port": "-p",
    "--timeline": "--timeline-filename",
    "flax": "jax",
    "tf": "tensorflow",
    "torch": "pytorch",
}


class CommandParser(argparse.ArgumentParser):
    """Suggests a correction for an unknown flag or choice."""

    def error(self, message: str) -> NoReturn:
        """See `argparse.ArgumentParser.error`."""
        super().error(with_guess(message, self))


def refused(prog: str, why: object, code: int = 2) -> int:
    """Print why a command does not do what it was asked; return the exit code.

    Args:
        prog: The command, for the message.
        why: The reason.
        code: What to return.
    """
    print(f"{prog}: error: {why}", file=sys.stderr)
    return code


def with_guess(message: str, parser: argparse.ArgumentParser) -> str:
    """Return a message of argparse with a suggestion.

    Args:
        message: The message of argparse.
        parser: The parser that reports it.
    """
    if found := re.search(_AMBIGUOUS, message):
        word, candidates = found[1].partition("=")[0], found[2].split(", ")
        guess = _ELSEWHERE.get(_usual(word)) or _either(candidates)
        return f"unknown flag {word}; did you mean {guess}?"
    if found := re.search(_CHOICE, message):
        choices = [choice.strip("'") for choice in found[2].split(", ")]
        return message + guess_of(found[1], choices)
    if found := re.search(_UNKNOWN, message):
        flags = list(_flags(parser))
        words = [word for word in found[1].split() if word.startswith("-")]
        guesses = [guess_of(word.partition("=")[0], flags) for word in words]
        return message + next(filter(None, guesses), "")
    return message


def guess_of(word: str, known: Iterable[str]) -> str:
    """Return "; did you mean …?" if a known word is similar, else "".

    Args:
        word: The unknown word.
        known: The possible words.
    """
    import difflib  # it takes a while, and most command lines are right

    usual = _usual(word)
    if usual in _ELSEWHERE and _ELSEWHERE[usual].split()[0] in known:
        return f"; did you mean {_ELSEWHERE[usual]}?"
    bare = {each.lstrip("-"): each for each in sorted(known)}
    near = difflib.get_close_matches(usual.lstrip("-"), bare, n=1)
    return f"; did you mean {bare[near[0]]}?" if near else ""


def program_like(program: str, path: str) -> str:
    """Return "; did you mean …?" if a program on a PATH has a similar name, else "".

    Args:
        program: The missing program.
        path: The folders to look in, as in PATH.
    """
    names: set[str] = set()
    for folder in path.split(os.pathsep):
        try:
            names.update(each.name for each in Path(folder or os.curdir).iterdir())
        except OSError:
            continue
    # The usual programs come first: others may be as similar.
    return guess_of(program, names & {"python", "python3", "bash"}) or guess_of(program, names)


def _usual(word: str) -> str:
    return word.replace("_", "-").lower()


def _either(candidates: list[str]) -> str:
    return " or ".join(filter(None, [", ".join(candidates[:-1]), candidates[-1]]))


def _flags(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the flags that a parser shows, and those of its commands."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _flags(command)
        elif action.help != argparse.SUPPRESS:
            yield from action.option_strings
