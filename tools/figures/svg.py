"""What all figures are made of: elements of SVG, and their colours in light and dark.

A figure names its colours by classes. On a page they follow the theme of the page; a file that
stands alone, as the README shows it, carries the same rules and follows the reader's system.
"""

from __future__ import annotations

from xml.sax.saxutils import escape, quoteattr

SANS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"

# The letters of contrast are at least 4.5 to 1 on their fills and on the page, in both themes.
LIGHT = {
    "ink": "#1f2328",
    "faint": "#545d68",
    "rule": "#c9d1d9",
    "paper": "#ffffff",
    "plain": "#f3f4f6",
    "a": "#cfe3ff",
    "b": "#ffe0b8",
    "c": "#d3f0d3",
    "d": "#ecd7fb",
    "sum": "#ffd1d6",
    "line1": "#0b5cad",
    "line2": "#b34700",
    "line3": "#1a7f37",
    "line4": "#8250df",
    "line5": "#a40e26",
    "line6": "#57606a",
    "line7": "#0a7075",
}
DARK = {
    "ink": "#e6edf3",
    "faint": "#b3bbc5",
    "rule": "#4a515a",
    "paper": "#131416",
    "plain": "#2a2e34",
    "a": "#163a63",
    "b": "#5a3a10",
    "c": "#1d4a26",
    "d": "#45305f",
    "sum": "#642230",
    "line1": "#62aaff",
    "line2": "#ffa657",
    "line3": "#5fd37a",
    "line4": "#c297ff",
    "line5": "#ff8b95",
    "line6": "#b1bac4",
    "line7": "#5fd3da",
}
FILLS = ("plain", "a", "b", "c", "d", "sum")
LINES = tuple(name for name in LIGHT if name.startswith("line"))


def variables(theme: dict[str, str]) -> str:
    return "".join(f"--figure-{name}:{value};" for name, value in theme.items())


def rules() -> str:
    """The classes that figures use."""
    parts = [
        f".figure-drawing{{font-family:{SANS};font-size:13px;max-width:100%;height:auto}}",
        ".figure-drawing text{fill:var(--figure-ink)}",
        ".figure-drawing .faint{fill:var(--figure-faint)}",
        ".figure-drawing .strong{font-weight:600}",
        ".figure-drawing .rule{stroke:var(--figure-rule);fill:none}",
        ".figure-drawing .arrow{stroke:var(--figure-faint);fill:none;stroke-width:1.6}",
        ".figure-drawing .head{fill:var(--figure-faint)}",
    ]
    parts += [
        f".figure-drawing .fill-{name}{{fill:var(--figure-{name});stroke:var(--figure-rule)}}"
        for name in FILLS
    ]
    for name in LINES:
        parts.append(f".figure-drawing .stroke-{name}{{stroke:var(--figure-{name});fill:none}}")
        parts.append(f".figure-drawing .bar-{name}{{fill:var(--figure-{name})}}")
    return "\n".join(parts)


def page_style() -> str:
    """For the pages, whose dark theme is chosen by the reader or by the system."""
    dark = variables(DARK)
    return "\n".join(
        [
            f"body{{{variables(LIGHT)}}}",
            f'body[data-theme="dark"]{{{dark}}}',
            f'@media(prefers-color-scheme:dark){{body:not([data-theme="light"]){{{dark}}}}}',
            rules(),
        ]
    )


def file_style() -> str:
    """For a file that stands alone."""
    return (
        f"svg{{{variables(LIGHT)}}}\n"
        f"@media(prefers-color-scheme:dark){{svg{{{variables(DARK)}}}}}\n{rules()}"
    )


def number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def element(name: str, content: str = "", /, **attributes: object) -> str:
    """An element; `class_` is its class, and an underscore in a name is a hyphen."""
    written = "".join(
        f" {key.rstrip('_').replace('_', '-')}="
        + quoteattr(number(value) if isinstance(value, float | int) else str(value))
        for key, value in attributes.items()
    )
    return f"<{name}{written}>{content}</{name}>" if content else f"<{name}{written}/>"


def text(x: float, y: float, words: str, class_: str = "", anchor: str = "middle") -> str:
    attributes = {"class_": class_} if class_ else {}
    return element("text", escape(words), x=x, y=y, text_anchor=anchor, **attributes)


def rectangle(x: float, y: float, width: float, height: float, class_: str, round_: int = 4) -> str:
    return element("rect", x=x, y=y, width=width, height=height, rx=round_, class_=class_)


def width_of(words: str, size: float = 13) -> float:
    """About how wide a text is; no font is asked, since the reader's is not known."""
    narrow = sum(letter in "iljt.,:;|'()[] " for letter in words)
    return size * (0.64 * (len(words) - narrow) + 0.4 * narrow)


def drawing(width: float, height: float, content: str, alt: str, style: str = "") -> str:
    """The whole figure, which screen readers tell as `alt`."""
    inside = f"<title>{escape(alt)}</title>"
    if style:
        inside += f"<style>{style}</style>"
    return element(
        "svg",
        inside + content,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {number(width)} {number(height)}",
        width=width,
        height=height,
        role="img",
        class_="figure-drawing",
    )
