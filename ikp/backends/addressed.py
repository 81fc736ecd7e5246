"""Address probes of a launch: its kernel runs with them once more, on copies of its memory."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ikp.backends.checked import Launched
from ikp.backends.reached import reached
from ikp.backends.run_once import run_once, zeros
from ikp.checking.check import run_apart
from ikp.checking.comparison import Verdict
from ikp.checking.request import Code, Request, packed
from ikp.core.address_tables import Recorded, figures
from ikp.core.lane_addresses import AddressFigures
from ikp.errors import PatchError

if TYPE_CHECKING:
    from ikp.backends.loaded import Module
    from ikp.probes.access_probes import AddressPatch, Site
    from ikp.unedited.plan import Plan


def probe_addresses(
    module: Module,
    stream: int,
    prof: Any,
    plan: Plan,
    ptx: str,
    shown: str,
    launched: Callable[[], Launched],
) -> AddressFigures | str | None:
    """Run a launch's kernel with address probes, once for each module, in another process.

    Args:
        module: the patched kernel that is launched.
        stream: the driver's handle.
        prof: the buffer of the launch's records.
        plan: which ranges the kernel has.
        ptx: the plain kernel's PTX, "" if not known.
        shown: the kernel's name in traces, where that is not its symbol.
        launched: returns the launch of the plain kernel.

    Returns:
        The figures; why there are none; None where an earlier launch of the kernel was probed.
    """

    def run(launch: Launched) -> AddressFigures:
        return _run(launch, prof, plan, ptx)

    return run_once(module, "addresses", stream, shown, launched, run)


def _run(launch: Launched, prof: Any, plan: Plan, ptx: str) -> AddressFigures:
    from ikp.probes.access_probes import patch_accesses

    shape = launch.shape
    made = patch_accesses(
        launch.cubin, launch.name, shape.grid, shape.block, detail=plan.detail, ptx=ptx
    )
    found = reached(launch.values, launch.variables, prof.address, launch.names)
    plain = Code(launch.cubin, *packed(launch.values), launch.constants)
    with zeros(made.tables.nbytes) as tables:
        from ikp.probes.code.entry_code import CELL

        cell = struct.pack("<QII", tables.address, made.tables.slots, 0)
        probed = replace(plain, cubin=made.cubin, constants={**launch.constants, CELL: cell})
        beside = (tables, *found.scratch)
        request = Request(launch.name, shape, plain, probed, found.written, beside, tables)
        verdict, content = run_apart(request)
    text = verdict.text if isinstance(verdict, Verdict) else ""
    if not content:
        raise PatchError(f"with address probes: {text}.")
    return _figures(made, content, text)


def _figures(made: AddressPatch, content: bytes, checked: str) -> AddressFigures:
    warps = made.sample.warps
    accesses = figures(
        content, [_recorded(each) for each in made.sites], warps, made.tables.capacity
    )
    return AddressFigures(
        *(made.sample.blocks, math.prod(made.sample.grid), made.sample.slots, checked),
        *(made.left_out, accesses),
    )


def _recorded(site: Site) -> Recorded:
    file, number = site.lines[0] if site.lines else ("", 0)
    each = site.access
    return Recorded(
        *(site.text, f"{file}:{number}" if file else "", site.range, each.space, each.kind),
        *(each.width, each.lanes, each.beyond),
    )
