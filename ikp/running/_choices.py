"""Parsers of the options of ``ikp run`` that choose kernels, blocks and warps."""

from __future__ import annotations

import re
from typing import Any

from ikp.errors import UsageError
from ikp.patterns import dotted

_MAX_BLOCKS = 1 << 31
"""More than any grid has."""


def kernels(text: str | None) -> re.Pattern[str] | None:
    """Return the pattern of ``--kernel``, or None for all kernels."""
    return dotted(text) if text else None


def of_launch(blocks_text: str | None, warps_text: str | None) -> dict[str, Any]:
    """Return the options of ``prof.buffer`` for ``--blocks`` and ``--warps``."""
    chosen: dict[str, Any] = {}
    if blocks_text is not None:
        chosen["blocks"] = blocks(blocks_text)
    if warps_text is not None:
        chosen["warps"] = warps(warps_text)
    if chosen:
        from ikp.core.segment import select  # imports numpy

        select(chosen.get("warps"), chosen.get("blocks"), "warp")
    return chosen


def blocks(text: str) -> range:
    """Return the blocks that ``"7"``, ``"0:64"`` or ``"::7"`` names."""
    if found := re.fullmatch(r"(\d*):(\d*)(?::(\d*))?", text, re.ASCII):
        first, stop, step = found.groups()
        end = min(int(stop or _MAX_BLOCKS), _MAX_BLOCKS)
        each = min(int(step or 1), _MAX_BLOCKS)
        chosen = range(int(first or 0), end, each) if each else range(0)
    elif re.fullmatch(r"\d+", text, re.ASCII):
        chosen = range(int(text), min(int(text) + 1, _MAX_BLOCKS))
    else:
        chosen = range(0)
    if chosen:
        return chosen
    raise UsageError(
        f"--blocks {text!r} names no blocks: write 7 for one, 0:64 for a range, ::7 for one in "
        "seven."
    )


def warps(text: str) -> list[int]:
    """Return the warps that ``"0"``, ``"0,4"`` or ``"0-3"`` names."""
    from ikp.core.segment import MAX_WARPS

    chosen: list[int] = []
    for part in text.split(","):
        found = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if found is None or not int(found[1]) <= int(found[2] or found[1]) < MAX_WARPS:
            raise UsageError(
                f"--warps {text!r} names no warps: write 0, 0,4 or 0-3. A block has at most "
                f"{MAX_WARPS}, counted from 0."
            )
        chosen += range(int(found[1]), int(found[2] or found[1]) + 1)
    return chosen
