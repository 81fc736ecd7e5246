"""Figures of address probes: what each access of a kernel asked of memory; kept in provenance.

A JSON text under ``ADDRESSES`` + the launch's label. ``ikp run --probe addresses`` writes it;
``ikp explain`` and ``ikp stats`` show it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

ADDRESSES: Final = "addresses of "
"""Before a label: the figures, as JSON."""
NO_ADDRESSES: Final = "no addresses of "
"""Before a label: why there are none."""
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class AccessFigures:
    """One access of the machine code, over the sampled warps. Means are over whole requests.

    A request is one execution by one warp. ``cost`` counts 32-byte sectors of global and local
    memory, and wavefronts (cycles) of shared memory, for one request; ``least`` is what the
    same lanes need where their addresses are adjacent. ``same_address`` is the most lanes with one
    address. ``reuse`` is how often a block asks for a sector, or for a word of shared memory;
    ``blocks_share``, how many of the sampled blocks ask for one sector. ``stride`` is the distance
    of neighbouring lanes' addresses in bytes, None where it differs.
    """

    text: str  # the instruction
    line: str  # "kernels/matmul.py:93"; "" where not known
    range: str  # the innermost range that it is in; "" for the kernel's own
    space: str  # "global", "shared", "local", "generic"
    kind: str  # "load", "store", "atomic", "copy"
    width: int  # bytes of a lane
    executed: int  # by lanes
    dropped: int  # of these, by lanes whose addresses had no room
    requests: int  # whose addresses are known
    active: float | None = None  # lanes
    cost: float | None = None
    least: float | None = None
    same_address: float | None = None
    reuse: float | None = None
    blocks_share: float | None = None
    stride: int | None = None


@dataclass(frozen=True, slots=True)
class AddressFigures:
    """The figures of one kernel, in the order of its code."""

    blocks: int  # that were sampled
    of_blocks: int
    warps: int  # that were sampled
    checked: str  # the result of comparing memory with what the plain kernel wrote
    left_out: tuple[tuple[str, str], ...]  # instructions without figures, and why
    accesses: tuple[AccessFigures, ...]

    def text(self) -> str:
        """Return the JSON that a trace's provenance holds."""
        said = asdict(self) | {"version": _VERSION}
        names = [each.name for each in fields(AccessFigures)]
        said["accesses"] = [[getattr(each, name) for name in names] for each in self.accesses]
        return json.dumps(said, separators=(",", ":"), ensure_ascii=False)


def read_addresses(provenance: Mapping[str, str], label: str) -> AddressFigures | None:
    """Return the figures of a label; None where the trace has none that can be read."""
    try:
        said = json.loads(provenance.get(f"{ADDRESSES}{label}", ""))
        return _parsed(said) if said["version"] == _VERSION else None
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _parsed(said: dict[str, Any]) -> AddressFigures:
    return AddressFigures(
        *(int(said["blocks"]), int(said["of_blocks"]), int(said["warps"]), str(said["checked"])),
        tuple((str(text), str(why)) for text, why in said["left_out"]),
        tuple(_access(each) for each in said["accesses"]),
    )


def _access(said: list[Any]) -> AccessFigures:
    text, line, region, space, kind, width, executed, dropped, requests, *means, stride = said
    active, cost, least, same_address, reuse, blocks_share = map(_number, means)
    return AccessFigures(
        *(str(text), str(line), str(region), str(space), str(kind)),
        *(int(width), int(executed), int(dropped), int(requests)),
        *(active, cost, least, same_address, reuse, blocks_share),
        None if stride is None else int(stride),
    )


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
