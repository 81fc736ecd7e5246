"""Which of several processes this is, as torch.distributed and its launchers number them."""

from __future__ import annotations

import os
import sys
from os import PathLike
from typing import Any, Final

from ikp.errors import ExportError
from ikp.paths import path_text

PLACE: Final = "{rank}"
"""Where a path says this, the number of the rank goes."""


def distributed() -> Any:
    """Return torch.distributed if this process is in a process group; None otherwise."""
    found = sys.modules.get("torch.distributed")  # whoever made a process group has imported it
    return found if found and found.is_available() and found.is_initialized() else None


def current_rank() -> int | None:
    """Return the rank of this process, None if it has none.

    It is the process group's. Before there is one, it is ``RANK`` in the environment, where a
    ``WORLD_SIZE`` above it stands beside it, as torchrun sets them: alone, it may be anything.
    """
    if (dist := distributed()) is not None:
        return int(dist.get_rank())
    rank, size = (os.environ.get(name, "") for name in ("RANK", "WORLD_SIZE"))
    if rank.isdecimal() and size.isdecimal() and int(rank) < int(size):
        return int(rank)
    return None


def with_rank(path: str | PathLike[str]) -> str:
    """Return the path with this process's rank for each ``{rank}`` in it.

    Raises:
        ExportError: it has a ``{rank}``, and this process has none.
    """
    text = path_text(path)
    if PLACE not in text:
        return text
    rank = current_rank()
    if rank is None:
        raise ExportError(
            f"{text} wants the rank of this process, which has none. Call "
            "torch.distributed.init_process_group before the session begins, start the program "
            f"with torchrun, or leave {PLACE} out."
        )
    return text.replace(PLACE, str(rank))
