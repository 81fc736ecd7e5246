"""``Device``: a GPU or the host, by torch's names; and torch, where the program has imported it.

ikp imports no torch into a program that has none: torch takes seconds, brings CUDA libraries of
other versions than the program's, and a profiler that prints on its stderr (decision 296).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, Final

from ikp.errors import UsageError


@dataclass(frozen=True, slots=True)
class Device:
    """A device: "cpu", "cuda:0"; "cuda" is the current GPU."""

    type: str
    index: int | None = None

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"


HOST: Final = Device("cpu")


def device_of(named: Any) -> Device:
    """Return the device that a user names: a torch device, "cuda:1", or the number of a GPU.

    Raises:
        UsageError: it names none.
    """
    if isinstance(named, Device):
        return named
    if isinstance(named, int) and not isinstance(named, bool) and named >= 0:
        return Device("cuda", named)
    kind, index = getattr(named, "type", None), getattr(named, "index", None)
    if isinstance(kind, str) and (index is None or isinstance(index, int)):
        return Device(kind, index)
    if isinstance(named, str):
        kind, colon, number = named.partition(":")
        if _is_a_kind(kind) and (not colon or number.isdecimal()):
            return Device(kind, int(number) if colon else None)
    raise UsageError(f"device={named!r} is no torch device: use 'cuda', 'cuda:1' or 'cpu'.")


def _is_a_kind(name: str) -> bool:
    """Return whether a program may mean a kind of devices: the CPU, GPUs, or another of torch's."""
    if name in ("cpu", "cuda"):
        return True
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    try:
        torch.device(name)
    except RuntimeError:
        return False
    return True


def torch_of_program() -> Any | None:
    """Return torch, where the program has imported all of it; else, or where it is a build for the
    CPU alone, which knows no GPU that the program uses otherwise, None.
    """
    found = sys.modules.get("torch")
    if found is None or getattr(getattr(found, "__spec__", None), "_initializing", False):
        return None
    backends = getattr(found, "backends", None)
    return found if backends is not None and backends.cuda.is_built() else None
