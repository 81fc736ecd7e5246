"""``tools_found``: where NVIDIA's tools for kernels' code are, as ``ikp doctor`` reports."""

from __future__ import annotations

from typing import Final

from ikp.errors import InspectError
from ikp.sass.disassembly.tool_paths import tool

TOOLS: Final = ("nvdisasm", "ptxas")


def tools_found() -> dict[str, str | None]:
    """Return the path of each tool; None of one that is not there."""
    return {name: _path(name) for name in TOOLS}


def _path(name: str) -> str | None:
    try:
        return str(tool(name))
    except InspectError:
        return None
