"""Whether a release may go out: its tag, its changelog, and the project's addresses.

python -m tools.release v1.2.3
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from tools.site.pages import addresses

ROOT: Final = Path(__file__).resolve().parents[1]


def main() -> None:
    """Say what is missing for the release that is tagged, and fail if anything is."""
    (tag,) = sys.argv[1:]
    version = re.search(r'__version__ = "(.+)"', (ROOT / "ikp" / "version.py").read_text("utf-8"))
    if version is None:
        sys.exit("ikp/version.py has no __version__.")
    changes = (ROOT / "CHANGELOG.md").read_text("utf-8")
    sys.exit("\n".join(missing(tag, version[1], changes, addresses())) or None)


def missing(tag: str, version: str, changes: str, urls: Mapping[str, str]) -> Iterator[str]:
    """Yield what is missing for a release.

    Args:
        tag: of its commit.
        version: of the package.
        changes: the changelog.
        urls: the project's addresses by name.
    """
    if tag != f"v{version}":
        yield f"The tag is {tag}, and the package's version {version}: tag v{version}, or raise it."
    if not re.search(rf"^## {re.escape(version)}\b", changes, re.MULTILINE):
        yield f'CHANGELOG.md has no "## {version}": give that name to what is "Unreleased".'
    for name, url in urls.items():
        if re.search(r"^https://[^/]*\.example(/|$)", url):
            yield f"[project.urls] {name} in pyproject.toml is no address yet: {url}"


if __name__ == "__main__":
    main()
