"""What is wrong with built pages: dead links, requests to other hosts, pictures without words.

`python -m tools.site.crawl docs/_build/html` lists it, and fails where there is something.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# What a browser loads by itself, by element and attribute; links are clicked.
LOADED = {
    ("img", "src"),
    ("img", "srcset"),
    ("source", "src"),
    ("source", "srcset"),
    ("script", "src"),
    ("iframe", "src"),
    ("video", "src"),
    ("audio", "src"),
    ("embed", "src"),
    ("object", "data"),
    ("use", "href"),
    ("image", "href"),
}
LOADED_LINKS = {
    "stylesheet",
    "icon",
    "preload",
    "prefetch",
    "modulepreload",
    "preconnect",
    "manifest",
}
IN_STYLES = re.compile(r"""(?:url\(|@import\s+)\s*['"]?((?:https?:)?//[^'")\s]+)""")


@dataclass
class Page:
    """What one file of HTML refers to."""

    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    wordless: list[str] = field(default_factory=list)


class Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page = Page()
        self.in_style = False
        self.drawings: list[bool] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        page = self.page
        page.ids |= {values[name] for name in ("id", "name") if values.get(name)}
        if tag == "a" and "href" in values:
            page.links.append(values["href"])
        if tag == "link":
            loads = LOADED_LINKS & set(values.get("rel", "").split())
            (page.loaded if loads else page.links).append(values.get("href", ""))
        page.loaded += [values[name] for name in values if (tag, name) in LOADED]
        page.loaded += IN_STYLES.findall(values.get("style", ""))
        if tag == "img" and not values.get("alt"):
            page.wordless.append(values.get("src", "a picture"))
        self.in_style = tag == "style"
        if tag == "svg" and values.get("role") == "img":
            self.drawings.append(bool(values.get("aria-label")))
        if tag == "title" and self.drawings:
            self.drawings[-1] = True

    def handle_data(self, data: str) -> None:
        if self.in_style:
            self.page.loaded += IN_STYLES.findall(data)

    def handle_endtag(self, tag: str) -> None:
        self.in_style = False
        if tag == "svg" and self.drawings and not self.drawings.pop():
            self.page.wordless.append("a drawing")


def read(path: Path) -> Page:
    reader = Reader()
    reader.feed(path.read_text())
    return reader.page


def is_outside(address: str) -> bool:
    return bool(urlsplit(address).netloc)


def crawl(folder: Path) -> list[str]:
    """What is wrong in a folder of built pages, a line each."""
    pages = {path.resolve(): read(path) for path in sorted(folder.rglob("*.html"))}
    if not pages:
        return [f"{folder} has no pages"]
    wrong = []
    for path, page in pages.items():
        name = path.relative_to(folder.resolve()).as_posix()
        wrong += [f"{name}: {what} has no words" for what in page.wordless]
        wrong += [f"{name}: loads {each}" for each in page.loaded if is_outside(each)]
        inside = [each for each in page.links + page.loaded if not is_outside(each)]
        wrong += [f"{name}: dead link {each}" for each in inside if is_dead(each, path, pages)]
    for path in sorted(folder.rglob("*.css")):
        found = IN_STYLES.findall(path.read_text())
        wrong += [f"{path.relative_to(folder).as_posix()}: loads {each}" for each in found]
    return wrong


def is_dead(address: str, path: Path, pages: dict[Path, Page]) -> bool:
    parts = urlsplit(address.split(" ")[0])
    if parts.scheme:  # data:, mailto:
        return False
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if target.is_dir():
        target /= "index.html"
    if not target.exists():
        return True
    page = pages.get(target)
    return bool(parts.fragment and page) and unquote(parts.fragment) not in page.ids


def main(arguments: list[str]) -> int:
    wrong = crawl(Path(arguments[0]))
    print("\n".join(wrong) or "no dead link, no request to another host, no picture without words")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
