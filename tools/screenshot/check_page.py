"""Opens a page of ``ikp report`` in a real browser, uses it, and prints what it saw as JSON.

    python tools/screenshot/check_page.py PAGE.html [FOLDER]

``views`` has for 1080 and 420 pixels, light and dark, how long the page took to load, by how many
pixels it is too wide, its smallest text and its background; the last view is without scripts.
``used`` has where boxes were before a zoom, after it, after a drag, and after the key ``0``, and
what the page said of the box that the pointer was on. ``complaints`` are messages of the console,
errors, and requests. FOLDER gets pictures of all views.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tools.screenshot.make_screenshot import driven


def check(page: Path, out: Path | None = None) -> dict[str, Any]:
    """Return what a browser shows of a page, as the module's docstring says.

    Raises:
        CannotTakePictureError: there is no browser, or the page can't be used.
    """
    return driven(
        "page.js", {"page": str(page.resolve()), "out": str(out.resolve()) if out else None}
    )


if __name__ == "__main__":
    file, *folder = map(Path, sys.argv[1:])
    print(json.dumps(check(file, *folder), indent=1))
