"""The directive `shared`: names of a framework that are described under `sirtaki`.

Each line below it is a name as users type it, such as `sirtaki.torch.init`. It gets an entry of its
own, which the search finds, with one sentence and a link to the description.
"""

from __future__ import annotations

import importlib
import inspect
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
from sphinx.util.inspect import stringify_signature


def entry(full: str) -> list[str]:
    """Return the reStructuredText of a name.

    Raises:
        AttributeError: There is no such name, or `sirtaki` has another one.
    """
    module, _, name = full.rpartition(".")
    found: Any = getattr(importlib.import_module(module), name)
    if getattr(importlib.import_module("sirtaki"), name) is not found:
        raise AttributeError(f"{full} is not sirtaki.{name}")
    link = f":py:obj:`sirtaki.{name}`"
    if isinstance(found, int):
        return [f".. py:data:: {full}", "", f"   {link}, a reduction.", ""]
    summary = " ".join((inspect.getdoc(found) or "").split("\n\n")[0].split())
    if isinstance(found, type):
        kind = "exception" if issubclass(found, BaseException) else "class"
        heading = f".. py:{kind}:: {full}"
    elif callable(found):
        signature = stringify_signature(
            inspect.signature(found), show_annotation=False, show_return_annotation=False
        )
        heading = f".. py:function:: {full}{signature}"
    else:
        heading = f".. py:data:: {full}"
    return [heading, "", f"   {summary} See {link}.", ""]


class Shared(Directive):
    has_content = True

    def run(self) -> list[nodes.Node]:
        try:
            lines = [line for name in self.content for line in entry(name.strip())]
        except (AttributeError, ImportError) as error:
            raise self.error(str(error)) from error
        parent = nodes.Element()
        self.state.nested_parse(StringList(lines, source=""), self.content_offset, parent)
        return parent.children
