"""The pages of the site: which file of the repository becomes which, and where their links lead.

docs/ and the files in the root are written for a reader of the repository. On the site README.md
is the start, and each entry of docs/api.md has a page. A link to a page of the site leads there;
one to another file, to the repository.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath
from typing import Final

from tools.llms import text as documents

ROOT: Final = Path(__file__).resolve().parents[2]
ROOT_PAGES: Final = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "CODE_OF_CONDUCT.md": "conduct.md",
    "docs/index.md": "documents.md",
}
"""Pages whose place on the site is another one than their place in the repository's docs/."""
API: Final = "docs/api.md"
GALLERY: Final = "gallery.md"
_GALLERY_WORDS: Final = """
Recorded on an H100 by the programs in examples/, and cut to some of its SMs. A trace opens in
Perfetto's page, inside your browser: it is not uploaded. `ikp view FILE` does it offline."""
_LINK: Final = re.compile(r"(\]\()([^)#:\s]*)(#[^)\s]*)?(?=\))")
_CODE: Final = re.compile(r"(^ *```.*?^ *```$|`[^`\n]*`)", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Entry:
    """A public name or command: the title of its part of docs/api.md, its name, and its text."""

    part: str
    name: str
    text: str

    @property
    def page(self) -> str:
        """Return the path of its page on the site."""
        kind = "-class" if self.name.rpartition(".")[2][:1].isupper() else ""  # Diff beside diff
        return f"api/{_slug(self.part)}/{_slug(self.name)}{kind}.md"


@dataclass(frozen=True)
class Shown:
    """An example of the gallery: what recorded it, and the name that its files have.

    In docs/gallery there are ``name.pftrace`` and ``name.png``.
    """

    name: str
    program: str

    @property
    def words(self) -> str:
        """Return what the example says of itself, without how it is run."""
        text = ast.get_docstring(ast.parse((ROOT / self.program).read_text(encoding="utf-8"))) or ""
        parts = [each for each in text.split("\n\n") if not each.startswith("Run: ")]
        return "\n\n".join(parts).replace("``", "`")


def shown() -> list[Shown]:
    """Return the examples whose traces are in docs/gallery."""
    traces = sorted((ROOT / "docs" / "gallery").glob("*.pftrace"))
    return [Shown(each.stem, f"examples/{each.stem}.py") for each in traces]


def gallery() -> str:
    """Return the page of the examples: what each is about, its picture, trace and source."""
    lines = ["# Gallery", _GALLERY_WORDS]
    for each in shown():
        source = (ROOT / each.program).read_text(encoding="utf-8")
        code = "\n".join(f"    {line}".rstrip() for line in source.splitlines())
        lines += [
            f"\n## {each.program.removeprefix('examples/')}\n",
            each.words,
            f"\n[![{each.name} in Perfetto](gallery/{each.name}.png)](gallery/{each.name}.png)\n",
            f"[Open in Perfetto](gallery/{each.name}.pftrace){{ .md-button .open-trace }}\n",
            f'??? note "{each.program}"\n\n    ```python\n{code}\n    ```',
        ]
    return "\n".join(lines) + "\n"


def source_of(page: str) -> str:
    """Return the file of the repository that a page of the site comes from."""
    sources = {site: source for source, site in ROOT_PAGES.items()}
    return sources.get(page, API if page.startswith("api/") else f"docs/{page}")


def addresses() -> dict[str, str]:
    """Return the project's addresses by name, as pyproject.toml has them."""
    facts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    urls: dict[str, str] = facts["project"]["urls"]
    return urls


def with_links(text: str, source: str, here: str, repository: str) -> str:
    """Return a page's text with the targets of its links on the site.

    Args:
        text: Markdown.
        source: the file it comes from, in the repository.
        here: its page on the site.
        repository: the address of the repository.
    """

    def placed(found: re.Match[str]) -> str:
        start, path, anchor = found[1], found[2], found[3] or ""
        if not path:
            return found[0]
        target = normpath(str(PurePosixPath(source).parent / path))
        page = page_of(target)
        if page is None:
            kind = "tree" if (ROOT / target).is_dir() else "blob"
            return f"{start}{repository}/{kind}/main/{target}{anchor}"
        return f"{start}{relpath(page, str(PurePosixPath(here).parent))}{anchor}"

    pieces = _CODE.split(text)
    return "".join(
        piece if piece.lstrip(" ").startswith("`") else _LINK.sub(placed, piece) for piece in pieces
    )


def page_of(source: str) -> str | None:
    """Return the page or picture of the site that a file of the repository becomes, if any."""
    if source in ROOT_PAGES:
        return ROOT_PAGES[source]
    if source == API:
        return "api/index.md"
    if source == "docs/decisions":
        return "decisions/README.md"
    inside = source.startswith("docs/") and (ROOT / source).is_file()
    return source.removeprefix("docs/") if inside else None


def entries() -> Iterator[Entry]:
    """Yield the entries of the API reference, each a page with headings from the first level on."""
    text = (ROOT / API).read_text(encoding="utf-8")
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        title, _, rest = part.partition("\n")
        for body in re.split(r"^### ", rest, flags=re.MULTILINE)[1:]:
            name = body.partition("\n")[0].strip("`")
            yield Entry(title, name, re.sub(r"^##(#+ )", r"\1", f"### {body}", flags=re.MULTILINE))


def api_index() -> str:
    """Return the page that lists all entries of the API by their part."""
    lines = ["# API reference"]
    part = ""
    for each in entries():
        lines += [f"\n## {each.part}\n"] if each.part != part else []
        part = each.part
        lines.append(f"- [`{each.name}`]({each.page.removeprefix('api/')})")
    return "\n".join(lines) + "\n"


def llms() -> str:
    """Return llms.txt with links to the site's pages: agents look for it beside the start page."""
    text = with_links(documents(), "llms.txt", "llms.txt", addresses()["Repository"])
    return re.sub(r"\]\(([^):]+)\.md\)", r"](\1.html)", text)


def _slug(title: str) -> str:
    return re.sub(r"[^\w.]+", "-", title.lower())
