"""Checks a built site: links end at a page and its heading, and no page fetches from elsewhere.

    python -m tools.site.check build/site

The generator checks the links of Markdown; this looks at the pages as they are, with the theme's
own parts. Links to other sites are not followed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

FETCHED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
"""What a browser loads without being asked. Of ``link``, the kinds in ``LOADED`` alone."""
LOADED = {"stylesheet", "icon", "preload", "modulepreload", "manifest"}
STYLE = re.compile(r"@import\s+[\"']?https?:|url\(\s*[\"']?(?:https?:)?//")


@dataclass
class Page(HTMLParser):
    """The links, anchors and fetched files of a page."""

    links: list[str] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what a tag refers to."""
        have = {name: value or "" for name, value in attrs}
        self.anchors |= {have[name] for name in ("id", "name") if name in have}
        if tag == "a" and "href" in have:
            self.links.append(have["href"])
        name = FETCHED.get(tag)
        if name in have and (tag != "link" or LOADED & set(have.get("rel", "").split())):
            self.fetched.append(have[name])


def main() -> None:
    """Check the site in the folder that is named, and say what is wrong with it."""
    folder = Path(sys.argv[1]).resolve()
    found = sorted(faults(folder))
    for each in found:
        print(each)
    print(f"{len([*folder.rglob('*.html')])} pages, {len(found)} faults")
    sys.exit(bool(found))


def faults(folder: Path) -> Iterator[str]:
    """Yield what is wrong with a site."""
    pages = {path: parsed(path) for path in folder.rglob("*.html")}
    if not pages:
        yield f"{folder} has no pages"
    for path, page in pages.items():
        if path.name == "404.html":  # it is served at any address, so its links begin at the root
            continue
        where = path.relative_to(folder)
        yield from (f"{where}: fetches {each}" for each in page.fetched if is_elsewhere(each))
        for link in (*page.links, *page.fetched):
            if not urlsplit(link).scheme and not is_elsewhere(link) and is_dead(link, path, pages):
                yield f"{where}: leads nowhere: {link}"
    for style in folder.rglob("*.css"):
        if STYLE.search(style.read_text(encoding="utf-8")):
            yield f"{style.relative_to(folder)}: fetches from another site"


def parsed(path: Path) -> Page:
    """Return what a page refers to."""
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def is_elsewhere(link: str) -> bool:
    """Return whether a link leads to another site."""
    return link.startswith("//") or urlsplit(link).scheme in {"http", "https"}


def is_dead(link: str, path: Path, pages: dict[Path, Page]) -> bool:
    """Return whether a link within the site leads to no file, or to no anchor of a page."""
    parts = urlsplit(link)
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if target.is_dir():
        target /= "index.html"
    if not target.is_file():
        return True
    anchor = unquote(parts.fragment)
    return bool(anchor) and target in pages and anchor not in pages[target].anchors


if __name__ == "__main__":
    main()
