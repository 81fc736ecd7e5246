"""A launch recorded by probes in its cubin or PTX: takes its buffer, and has its kernel patched."""

from __future__ import annotations

import ctypes
import math
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final, Protocol

from ikp.backends.launched_grid import LaunchGrid
from ikp.backends.refusing import SpecError, in_words
from ikp.checking.comparison import CheckResult
from ikp.core.abi import (
    DENSE_HEADER_BYTES,
    MIN_SEGMENT_BYTES,
    ClockKind,
    Language,
    segment_bytes,
)
from ikp.core.run_figures import AddressFigures, TriedSuspects
from ikp.core.segment import EVERYTHING, Selection, Spec, select
from ikp.driver import cuda
from ikp.errors import PatchError
from ikp.probes.kept_code import keep
from ikp.session import current
from ikp.session.current import Session
from ikp.session.device import HOST
from ikp.session.known_launch import Launching, SlowError
from ikp.session.service import service_of
from ikp.unedited.plan import Plan
from ikp.verbs.dsl import intern

if TYPE_CHECKING:
    from ikp.probes.made_patch import Patch

PER_THREAD: Final = 2
"""The handle of the per-thread default stream (CU_STREAM_PER_THREAD)."""


class Counts(Protocol):
    """A counter of recorded launches, by label."""

    recorded: Counter[str]


@dataclass(slots=True)
class RecordedLaunch:
    """A launch that is to be recorded, made by any launcher.

    ``buffer`` returns a session's buffer; None where the session has ended. It takes a plan, a
    grid, the warps of a block, the records of a warp where these are known, and the selection. It,
    ``report`` and ``drop`` must not hold the launch. A buffer is read back once nothing refers to
    it any more, and objects in a reference cycle live until Python collects cycles.
    """

    plan: Plan
    language: Language
    buffer: Callable[[Plan, tuple[int, int, int], int, int | None, Selection], Any]
    selection: Selection = EVERYTHING  # which warps and blocks a user chose
    otherwise: Plan | None = None  # the plan to record it by where ``plan`` can't be used
    taken: list[Any] = field(default_factory=list)  # its buffer
    patch: Patch | None = None  # the patched kernel that was launched
    verdict: CheckResult | None = None  # of the A/B check
    addresses: AddressFigures | str | None = None  # of address probes, or why there are none
    tried: TriedSuspects | str | None = None  # times without suspects, or why there are none
    report: Callable[[RecordedLaunch], None] | None = None  # adds the kernel's facts to the trace
    drop: Callable[[], None] | None = None  # forgets its buffer: it was not launched
    label: str = ""  # under which the launch is recorded
    facts: MutableMapping[str, str] | None = None  # of its session
    session: weakref.ref[Session] | None = None

    def heeded(self, patch: Patch) -> Selection:
        """Return which warps and blocks record in the patched code."""
        return patch.sample if self.selection == EVERYTHING else self.selection


class WantedLaunch(Protocol):
    """The interface of a launch that a thread is to record next."""

    def made(self) -> RecordedLaunch:
        """Return the launch to record, which has reached a launcher."""


class Aside(ctypes.Structure):
    """What a thread's launches are kept from stocks by, as ``stock.c`` lays it out."""

    _fields_ = (("value", ctypes.c_uint32), ("left", ctypes.c_void_p))
    value: int  # reasons
    left: int | None  # a function: its next launch takes a buffer nevertheless


class Wanted:
    """A thread's next launch to record; and how many calls of ikp's own are under way in it, inside
    which no other launch is recorded.
    """

    __slots__ = ("aside", "kernel", "launch", "left", "others", "over", "tries")

    def __init__(self) -> None:
        self.launch: Any = None  # a WantedLaunch
        self.left: Any = None  # a LeftLaunch (repeats.py) that is under way
        self.others = 0
        self.over = ""  # the kernel whose launch is under way, and which is recorded no more
        self.kernel: Any = None  # the same, as its launcher knows it
        self.tries = 0  # how many autotuners try kernels
        self.aside = _aside[-1]()


class _Thread(threading.local):
    def __init__(self) -> None:
        self.wanted = Wanted()


_aside: list[Callable[[], Aside]] = [Aside]
_thread = _Thread()


def wanted() -> Wanted:
    """Return this thread's: to be kept by who asks it often, as a launch does."""
    return _thread.wanted


def set_aside(cell: Callable[[], Aside]) -> None:
    """Have a library see whether this thread's launches are decided on by Python alone.

    Args:
        cell: returns a thread's reasons for that.
    """
    _aside.append(cell)
    wanted().aside = cell()


def is_hooked() -> bool:
    """Return whether the driver's hook can make launches with buffers that were taken ahead."""
    return len(_aside) > 1


passing: dict[str, Callable[[int], bool]] = {}
"""Kernels that are recorded no more and are launched without a word to ``wanted``: by symbol,
whether a driver's handle is one of them."""


@contextmanager
def others() -> Iterator[None]:
    """Record none of this thread's launches meanwhile, except the wanted one."""
    here = wanted()
    here.others += 1
    here.aside.value += 1
    try:
        yield
    finally:
        here.others -= 1
        here.aside.value -= 1


def pass_by(
    name: str, call: Callable[..., object], kernel: object, *args: object, **kwargs: object
) -> object:
    """Launch a kernel that is recorded no more by its own call, and record nothing inside it.

    Each launch of a program may come here, so this is no context manager, which takes 1 us.

    Args:
        name: the kernel's.
        call: launches it, as ``call(kernel, *args, **kwargs)``.
        kernel: as its launcher knows it.
        args: of the launch.
        kwargs: of the launch.
    """
    here = wanted()
    before, known, aside = here.over, here.kernel, here.aside
    here.others += 1
    aside.value += 1
    here.over, here.kernel = name, kernel
    try:
        return call(kernel, *args, **kwargs)
    finally:
        here.others -= 1
        aside.value -= 1
        here.over, here.kernel = before, known


@contextmanager
def aside() -> Iterator[None]:
    """Let this thread allocate and load while a graph is captured, on a stream of its own."""
    import torch

    with cuda.relaxed(), torch.cuda.stream(_beside()):
        yield


def beside(prof: Any, stream: int, *, captured: bool) -> Callable[[Callable[[], None]], None]:
    """Return a function that queues a copy on a stream before a launch that is under way.

    Inside the program's own call into the CUDA runtime, CUPTI gives the copy that call's
    correlation id. Two records share it then, and torch.profiler fails. So another thread queues
    the copy. A capture makes no such records, and the per-thread default stream is another one in
    each thread.
    """
    if stream == PER_THREAD or captured:
        return _here
    return service_of(getattr(prof.data, "device", HOST)).call


def _here(job: Callable[[], None]) -> None:
    job()


@cache
def _beside() -> Any:
    """Return a stream that no CUDA graph captures."""
    import torch

    return torch.cuda.Stream()


def taken(
    make: Callable[[], Any], stream: int, otherwise: Callable[[], Any], *, captured: bool
) -> Any:
    """Return the buffer of a launch; without asking the device, where all it needs is at hand.

    Args:
        make: takes the buffer.
        stream: the driver's handle.
        otherwise: takes it where torch or the driver is to be asked.
        captured: whether a CUDA graph captures the launch: then they are asked.
    """
    if not captured:
        with suppress(SlowError), Launching(cuda.device(), 0 if stream == PER_THREAD else stream):
            return make()
    return otherwise()


def take() -> RecordedLaunch | None:
    """Return the launch that this thread is to record now, once."""
    here = wanted()
    launch, here.launch = here.launch, None
    made: RecordedLaunch | None = None if launch is None else launch.made()
    return made


@lru_cache(256)
def _check(text: str) -> None:
    """Refuse a spec that probes in machine code can't follow.

    Args:
        text: of the spec that the session asks for.

    Raises:
        SpecError: they can't follow it.
    """
    spec = Spec.parse(text)
    wrong = [
        text
        for text, asked in (
            (f"clock='{spec.clock.name.lower()}'", spec.clock is not ClockKind.CYCLES),
            (f"overflow={spec.overflow.name.lower()!r}", spec.overflow.wraps),
            ("mode='totals'", spec.totals),
        )
        if asked
    ]
    if wrong:
        raise SpecError(
            f"records in machine code have no {', '.join(wrong)}: open the session without."
        )


def chosen(buffer: Mapping[str, Any]) -> Selection:
    """Return which warps and blocks record, by the options of ``prof.buffer``.

    Raises:
        UsageError: an option can't be used.
    """
    return select(buffer.get("warps"), buffer.get("blocks"), buffer.get("granularity", "warp"))


def shape(
    grid: tuple[int, int, int], warps: int, most: int | None, selection: Selection = EVERYTHING
) -> dict[str, Any]:
    """Return the options of ``prof.buffer`` for a launch.

    Args:
        grid: blocks.
        warps: of a block.
        most: the most records that a warp makes; None where that is not known.
        selection: which warps and blocks record.
    """
    sample = {"blocks": selection} if selection.others else {}
    if most is None and selection.count_slots(math.prod(grid), warps):
        return {**sample, "grid": grid, "num_warps": warps}
    # A slot is there also where no warp is chosen: its size says that the launch is recorded.
    slots = selection.count_slots(math.prod(grid), warps, least=1)
    size = segment_bytes(slots, max(most or 0, 2), header_bytes=DENSE_HEADER_BYTES)
    size += DENSE_HEADER_BYTES * selection.count_headers(math.prod(grid), warps)
    return {**sample, "size": max(size, MIN_SEGMENT_BYTES)}


def take_buffer(
    counts: Counts, session: Session, label: str, plan: Plan, options: dict[str, Any]
) -> Any:
    """Take a session's buffer for a launch, and count it; None where the session has ended.

    Raises:
        SpecError: the session asks for a spec that probes in machine code can't follow.
    """
    prof = current.buffer(session, label, options)  # a session drops what is never launched with
    if prof is None:
        return None
    try:
        _check(prof.spec_text)
    except PatchError:
        session.discard(prof)
        raise
    counts.recorded[label] += 1
    session.facts[f"marks in {label}"] = str(plan)
    return prof


def drop_buffer(counts: Counts, session: Session, label: str, prof: Any) -> None:
    """Forget a session's buffer, and its count: the kernel was not launched with it."""
    session.discard(prof)
    counts.recorded[label] -= 1


def made(
    code: bytes,
    name: str,
    ptx: str,
    launch: RecordedLaunch,
    *,
    shared: int,
    shown: str = "",
    block: tuple[int, int, int] | None = None,
    argue: bool = False,
    spare: bool = False,
    grid: LaunchGrid,
    assemble: Callable[[str], bytes] | None = None,
) -> Patch:
    """Insert probes into a kernel by a launch's plan, and keep the result for ``ikp inspect``.

    Args:
        code: the cubin.
        name: the kernel's symbol, as the compiler wrote it.
        ptx: its PTX, where that is known.
        launch: the first launch.
        shared: bytes of shared memory that a block has.
        shown: the kernel's name in traces, where that is another name.
        block: threads of a block, where the kernel does not say.
        argue: whether the launcher can pass one more argument.
        spare: whether the last 16 bytes of its arguments are the launcher's to set.
        grid: properties and selection of its launches' blocks.
        assemble: makes machine code of PTX, as the cubin was made; where probes go into PTX.

    Raises:
        PatchError: it can't be patched, or is not to be.
        KernelError: the chosen code is not in it.
    """
    # A program that records no launch never imports this.
    from ikp.backends.patch_input import PatchInput, changes_code

    if not changes_code():
        raise PatchError("IKP_PATCH=0 in the environment says that no machine code is changed.")
    plan, language = launch.plan, launch.language
    with in_words(name, shown):
        if assemble is not None:
            options: dict[str, Any] = {"detail": plan.detail, "language": language}
            options |= {"block": block, "shared": shared, "select": grid.select}
            patched = _marked(code, name, ptx, assemble, options)
        else:
            asked = PatchInput.of(
                *(code, name, ptx, plan, language),
                shared=shared,
                block=block,
                argue=argue,
                spare=spare,
                grid=grid,
            )
            patched = asked.patched()
    for each in patched.names:
        intern(each, shown if each == name else "")
    return patched


def _marked(
    code: bytes, name: str, ptx: str, assemble: Callable[[str], bytes], options: dict[str, Any]
) -> Patch:
    """Insert probes into a kernel's PTX, and keep the patched kernel."""
    from ikp.ptx.marking import mark

    made = mark(ptx, code, name, assemble, **options)
    plain = None if made.patch.declared is None else code
    return replace(made.patch, kept=keep(made.patch, name, made.text, options["shared"], plain))
