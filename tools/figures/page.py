"""Sphinx's part: directives that draw figures and show what commands say of themselves.

`exchange` and `boxes` draw the text below them, `chart` draws results of the benchmarks. Each has
`:alt:`, which says in words what it shows. `help` shows what a command prints for --help, `shared`
lists names that are described elsewhere.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import Directive, directives
from sphinx.application import Sphinx

from tools.figures import boxes, exchange, plot
from tools.figures.charts import CHARTS
from tools.figures.names import Shared
from tools.figures.svg import page_style


def html(source: str) -> nodes.raw:
    return nodes.raw("", source, format="html")


class Drawn(Directive):
    """A figure from the text below the directive."""

    has_content = True
    option_spec: ClassVar = {"alt": directives.unchanged_required}
    drawer: Callable[[str, str], str]

    def run(self) -> list[nodes.Node]:
        if "alt" not in self.options:
            raise self.error("a figure needs :alt:, which says what it shows")
        try:
            drawn = type(self).drawer("\n".join(self.content), self.options["alt"])
        except (ValueError, KeyError) as error:
            raise self.error(f"cannot draw this: {error}") from error
        return [html(f'<div class="figure-box">{drawn}</div>')]


class Exchange(Drawn):
    drawer = staticmethod(exchange.draw)


class Boxes(Drawn):
    drawer = staticmethod(boxes.draw)


class ChartOfResults(Directive):
    """The chart of that name; `:alt:` says what it shows."""

    required_arguments = 1
    option_spec: ClassVar = {"alt": directives.unchanged_required}

    def run(self) -> list[nodes.Node]:
        if "alt" not in self.options:
            raise self.error("a chart needs :alt:, which says what it shows")
        chart = CHARTS[self.arguments[0]]()
        return [
            html(
                f'<div class="figure-box">{plot.draw(chart, self.options["alt"])}'
                f'<p class="figure-origin">{escape(chart.origin)}</p>'
                f"<details><summary>The numbers</summary>{plot.table(chart)}</details></div>"
            )
        ]


class Help(Directive):
    """What a command prints for --help; the words are those of `sirtaki` or `horovodrun`."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        program, *words = self.arguments[0].split()
        shown = subprocess.run(
            [str(Path(sys.executable).with_name(program)), *words, "--help"],
            env={**os.environ, "COLUMNS": "88", "NO_COLOR": "1", "TERM": "dumb"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        block = nodes.literal_block(shown, shown, language="text")
        return [block]


def write_style(app: Sphinx, exception: Exception | None) -> None:
    if exception is None and app.builder.format == "html":
        (Path(app.outdir) / "_static" / "figures.css").write_text(page_style())


def make_accessible(
    app: Sphinx, name: str, template: str, context: dict[str, Any], tree: nodes.document | None
) -> None:
    """Say of what level the headings of the navigation are, and let keys reach what scrolls."""
    navigation = context.get("furo_navigation_tree", "")
    context["furo_navigation_tree"] = navigation.replace(
        'role="heading"', 'role="heading" aria-level="2"'
    )
    body = context.get("body", "").replace("<pre>", '<pre tabindex="0">')
    context["body"] = body.replace(
        '<div class="table-wrapper', '<div tabindex="0" class="table-wrapper'
    )


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("exchange", Exchange)
    app.add_directive("boxes", Boxes)
    app.add_directive("chart", ChartOfResults)
    app.add_directive("help", Help)
    app.add_directive("shared", Shared)
    app.add_css_file("figures.css")
    app.connect("build-finished", write_style)
    # After the theme has made its navigation.
    app.connect("html-page-context", make_accessible, priority=900)
    return {"version": "1", "parallel_read_safe": True}
