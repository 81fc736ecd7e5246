"""Address probes of a launch: its kernel runs with them once more, on copies of its memory."""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ikp.backends.checked import Launched, wait_for_earlier
from ikp.backends.reached import reached
from ikp.backends.refusing import in_words
from ikp.checking.check import run_apart
from ikp.checking.comparison import Buffer, Verdict
from ikp.checking.request import Code, Request, packed
from ikp.core.address_tables import Recorded, figures
from ikp.core.lane_addresses import AddressFigures
from ikp.driver import cuda
from ikp.errors import IkpError, PatchError

if TYPE_CHECKING:
    from ikp.backends.loaded import Module
    from ikp.probes.access_probes import AddressPatch, Site
    from ikp.unedited.plan import Plan

_WINDOW = 1 << 32
"""Probes keep the upper half of an address: the buffer lies inside one such window."""
_TRIES = 4


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
    if module.probed:
        return None
    if cuda.capturing(stream):
        return "a CUDA graph captures its launch."
    module.probed = True
    try:
        wait_for_earlier()
        launch = launched()
        with in_words(launch.name, shown):
            return _run(launch, prof, plan, ptx)
    except IkpError as error:
        return str(error)


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


@contextmanager
def zeros(nbytes: int) -> Iterator[Buffer]:
    """Lend memory of the device, zeroed, inside one window of addresses.

    Raises:
        PatchError: there is not so much.
    """
    taken = list[int]()
    try:
        for _ in range(_TRIES):
            taken.append(address := cuda.allocate(nbytes))
            if address // _WINDOW == (address + nbytes - 1) // _WINDOW:
                break
        else:
            raise PatchError(f"no {nbytes:,} bytes lie in one window of addresses.")
        size = ctypes.c_size_t(nbytes)
        cuda.call("cuMemsetD8_v2", ctypes.c_uint64(address), 0, size, to="clear memory")
        cuda.wait()
        yield Buffer("addresses", address, nbytes)
    finally:
        for each in taken:
            with suppress(PatchError):
                cuda.free(each)


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
