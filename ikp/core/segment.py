"""A segment: the memory that one kernel launch records into, as the host holds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ikp.core.selection import EVERYTHING, Selection
from ikp.core.spec import Spec

Tensor: TypeAlias = Any
"""A ``torch.Tensor``: torch is loaded late, and its types are none here."""


@dataclass(slots=True, eq=False)
class Segment:
    """``data`` is a uint8 tensor of shape ``(bytes,)``: launch header, then the slots."""

    label: str
    data: Tensor
    spec: Spec
    backend: str
    device_name: str
    clock_rate_hz: float  # advertised SM clock; used only where anchors can't give the rate
    regions: Mapping[int, str] = field(default_factory=dict)  # names of user-given ids
    selection: Selection = EVERYTHING  # which warps and blocks record
    enabled: bool = True  # False: the kernel runs with recording off, at run time
    rank: int | None = None  # of this process when the buffer was taken

    @property
    def nbytes(self) -> int:
        """Size in bytes, the launch header included."""
        return int(self.data.numel())
