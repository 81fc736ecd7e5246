"""What mkdocs does beside rendering docs/: addresses, navigation, pages from elsewhere, links."""

from __future__ import annotations

from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from tools.site.pages import (
    API,
    GALLERY,
    ROOT,
    ROOT_PAGES,
    addresses,
    api_index,
    entries,
    gallery,
    llms,
    source_of,
    with_links,
)

_DECISIONS_BOOST = 0.3
"""Of decisions in the search: pages for users come first."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Take addresses from pyproject.toml, and put API and decisions into the navigation."""
    urls = addresses()
    config.site_url, config.repo_url = urls["Documentation"], urls["Repository"]
    config.repo_name, config.edit_uri = "Repository", None
    parts: dict[str, list[str]] = {}
    for each in entries():
        parts.setdefault(each.part, []).append(each.page)
    api: list[Any] = ["api/index.md", *({title: pages} for title, pages in parts.items())]
    decisions = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    config.nav += [
        {"API": api},
        {"Decisions": ["decisions/README.md", *(f"decisions/{each.name}" for each in decisions)]},
    ]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Replace the pages that have another place on the site, and add the API's."""
    for moved in ("index.md", API.removeprefix("docs/")):
        page = files.get_file_from_path(moved)
        if page is not None:
            files.remove(page)
    texts = {place: (ROOT / source).read_text("utf-8") for source, place in ROOT_PAGES.items()}
    texts |= {
        GALLERY: gallery(),
        "api/index.md": api_index(),
        **{each.page: each.text for each in entries()},
    }
    for place, text in texts.items():
        files.append(File.generated(config, place, content=text))
    files.append(File.generated(config, "llms.txt", content=llms()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let links lead to where their targets are on the site."""
    here = page.file.src_uri
    if here.startswith("decisions/"):
        page.meta["search"] = {"boost": _DECISIONS_BOOST}
    return with_links(markdown, source_of(here), here, addresses()["Repository"])
