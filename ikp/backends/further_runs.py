"""Runs a launch's kernel again, in another process: for addresses, or without some instructions.

With address probes the kernel runs once more; trials time it without its suspects, one by one. Each
loaded module has at most one run of each kind in a session.
"""

from __future__ import annotations

import ctypes
import math
import statistics
import struct
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ikp.backends.checked import PlainLaunch, wait_for_earlier
from ikp.backends.reached import Reached, reached
from ikp.backends.refusing import in_words
from ikp.checking.comparison import Buffer, CheckResult
from ikp.checking.messages import KernelForm, Request, RunTimes, packed
from ikp.checking.process import run_apart
from ikp.core.address_tables import RecordedAccess, figures
from ikp.core.run_figures import AddressFigures, TriedSuspect, TriedSuspects
from ikp.driver import cuda, cuda_memory
from ikp.errors import IkpError, PatchError
from ikp.unedited.plan import NEEDED

if TYPE_CHECKING:
    from ikp.backends.loaded import Module
    from ikp.backends.patched import RecordedLaunch
    from ikp.probes.access_probes import AccessSite, AddressPatch
    from ikp.probes.suspects import Trial
    from ikp.session.current import Session
    from ikp.unedited.plan import Plan


_Found = TypeVar("_Found")
_WINDOW: Final = 1 << 32
"""Probes keep the upper half of an address: the buffer lies inside one such window."""
_TRIES: Final = 4
_PATIENCE_S: Final = 1.0
_MOST_BYTES: Final = 512 << 20
"""How long launches before it may take, and how much memory a launch may reach, where its kernel
has address probes without having been asked for."""


def run_once(
    module: Module,
    kind: str,
    session: weakref.ref[Session] | None,
    stream: int,
    shown: str,
    launched: Callable[[], PlainLaunch],
    run: Callable[[PlainLaunch], _Found],
    patience: float | None = None,
) -> _Found | str | None:
    """Make a further run of a launch's kernel, if it is the first one of its kind in a session.

    Args:
        module: the patched kernel that is launched.
        kind: of the run.
        session: the one that records the launch.
        stream: the driver's handle.
        shown: the kernel's name in traces, where that is not its symbol.
        launched: returns the launch of the plain kernel.
        run: makes the run, and returns what it found.
        patience: seconds that launches before it may take to end; None for as long as a check's.

    Returns:
        What was found; why nothing was; None where an earlier launch had such a run.
    """
    if (kind, session) in module.further:
        return None
    if cuda.capturing(stream):
        return "a CUDA graph captures its launch."
    module.further.add((kind, session))
    try:
        wait_for_earlier(*([] if patience is None else [patience]))
        launch = launched()
        with in_words(launch.name, shown):
            return run(launch)
    except IkpError as error:
        return str(error)


@contextmanager
def zeros(nbytes: int) -> Iterator[Buffer]:
    """Lend memory of the device, zeroed, inside one window of addresses.

    Raises:
        PatchError: there is not so much.
    """
    taken = list[int]()
    try:
        for _ in range(_TRIES):
            taken.append(address := cuda_memory.allocate(nbytes))
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
                cuda_memory.free(each)


def probe_addresses(
    module: Module,
    stream: int,
    prof: Any,
    plan: Plan,
    ptx: str,
    shown: str,
    launched: Callable[[], PlainLaunch],
    session: weakref.ref[Session] | None = None,
) -> AddressFigures | str | None:
    """Run a launch's kernel with address probes, once for a module in a session.

    It runs in another process.

    Args:
        module: the patched kernel that is launched.
        stream: the driver's handle.
        prof: the buffer of the launch's records.
        plan: which ranges the kernel has.
        ptx: the plain kernel's PTX, "" if not known.
        shown: the kernel's name in traces, where that is not its symbol.
        launched: returns the launch of the plain kernel.
        session: the one that records the launch.

    Returns:
        The figures; why there are none; None where an earlier launch of the kernel was probed.
    """

    def run(launch: PlainLaunch) -> AddressFigures:
        return _run(launch, prof, plan, ptx)

    patience = _PATIENCE_S if plan.probe == NEEDED else None
    return run_once(module, "addresses", session, stream, shown, launched, run, patience)


def _run(launch: PlainLaunch, prof: Any, plan: Plan, ptx: str) -> AddressFigures:
    from ikp.probes.access_probes import patch_accesses

    shape = launch.shape
    needed = plan.probe == NEEDED
    values = launch.values if needed else None
    made = patch_accesses(
        *(launch.cubin, launch.name, shape.grid, shape.block),
        detail=plan.detail,
        ptx=ptx,
        values=values,
    )
    found = reached(launch.values, launch.variables, prof.address, launch.names)
    plain = KernelForm(launch.cubin, *packed(launch.values), launch.constants)
    with zeros(made.tables.nbytes) as tables:
        from ikp.probes.code.entry_code import CELL

        cell = struct.pack("<QII", tables.address, made.tables.slots, 0)
        probed = replace(plain, cubin=made.cubin, constants={**launch.constants, CELL: cell})
        beside = (tables, *found.scratch)
        request = Request(launch.name, shape, plain, probed, found.written, beside, tables)
        verdict, content = run_apart(request, *([_MOST_BYTES] if needed else []))
    text = verdict.text if isinstance(verdict, CheckResult) else ""
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


def _recorded(site: AccessSite) -> RecordedAccess:
    file, number = site.lines[0] if site.lines else ("", 0)
    each = site.access
    return RecordedAccess(
        *(site.text, f"{file}:{number}" if file else "", site.range, each.space, each.kind),
        *(each.width, each.lanes, each.beyond),
    )


_ROUNDS: Final = 15
_NS: Final = 1e9


def try_suspects(
    module: Module,
    stream: int,
    prof: Any,
    most: int,
    shown: str,
    launched: Callable[[], PlainLaunch],
    session: weakref.ref[Session] | None = None,
) -> TriedSuspects | str | None:
    """Time a launch's kernel without its suspects, once for a module in a session.

    It runs in another process.

    Args:
        module: the patched kernel that is launched.
        stream: the driver's handle.
        prof: the buffer of the launch's records.
        most: how many suspects are tried.
        shown: the kernel's name in traces, where that is not its symbol.
        launched: returns the launch of the plain kernel.
        session: the one that records the launch.

    Returns:
        The times; why there are none; None where an earlier launch of the kernel was tried.
    """

    def run(launch: PlainLaunch) -> TriedSuspects:
        return _tried(launch, prof, most)

    return run_once(module, "suspects", session, stream, shown, launched, run)


def _tried(launch: PlainLaunch, prof: Any, most: int) -> TriedSuspects:
    from ikp.probes.suspects import trials

    found = reached(launch.values, launch.variables, prof.address, launch.names)
    made, count = trials(launch.cubin, launch.name, launch.shape.block, most)
    return TriedSuspects(count, tuple(_one(launch, found, each) for each in made))


def _one(launch: PlainLaunch, found: Reached, trial: Trial) -> TriedSuspect:
    """Return one suspect's times, or why there are none."""
    from ikp.probes.code.entry_code import CELL
    from ikp.probes.suspects import LINE_BYTES, REDIRECTED

    suspect = trial.suspect
    untimed = TriedSuspect(
        suspect.kind, suspect.line, len(suspect.members), trial.how, trial.refused
    )
    if trial.refused:
        return untimed
    plain = KernelForm(launch.cubin, *packed(launch.values), launch.constants)
    redirected = trial.how == REDIRECTED
    with zeros(LINE_BYTES) if redirected else nullcontext() as line:
        constants = dict(launch.constants)
        if line is not None:
            constants[CELL] = struct.pack("<QII", line.address, 0, 0)
        other = replace(plain, cubin=trial.cubin, constants=constants)
        beside = (*([] if line is None else [line]), *found.scratch)
        request = Request(
            *(launch.name, launch.shape, plain, other, found.written, beside), rounds=_ROUNDS
        )
        answer, _ = run_apart(request)
    if not isinstance(answer, RunTimes):
        return replace(untimed, refused=f"{answer.text}.")
    gains = [1 - b / a for a, b in zip(answer.plain, answer.other, strict=True)]
    quartiles = statistics.quantiles(gains, n=4)
    return replace(
        untimed,
        plain_ns=round(_NS * statistics.median(answer.plain), 1),
        tried_ns=round(_NS * statistics.median(answer.other), 1),
        gain=round(statistics.median(gains), 4),
        spread=round((quartiles[2] - quartiles[0]) / 2, 4),
    )


def run_further(
    module: Module,
    stream: int,
    prof: Any,
    launch: RecordedLaunch,
    ptx: Callable[[], str],
    shown: str,
    launched: Callable[[], PlainLaunch],
) -> None:
    """Make the runs that a launch's plan asks for, and keep in the launch what they found.

    Args:
        module: the patched kernel that is launched.
        stream: the driver's handle.
        prof: the buffer of the launch's records.
        launch: the launch.
        ptx: returns the plain kernel's PTX, "" if not known.
        shown: the kernel's name in traces, where that is not its symbol.
        launched: returns the launch of the plain kernel.
    """
    plan, session = launch.plan, launch.session
    if plan.probe:
        found = probe_addresses(module, stream, prof, plan, ptx(), shown, launched, session)
        unasked = plan.probe == NEEDED and isinstance(found, str)
        launch.addresses = None if unasked else found
    if plan.tries:
        launch.tried = try_suspects(module, stream, prof, plan.tries, shown, launched, session)
