"""A launch that is to be recorded in a kernel's machine code: what is asked for, and made of it."""

from __future__ import annotations

import math
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Protocol

from ikp.backends.launched_grid import Grid
from ikp.backends.refusing import SpecError, in_words
from ikp.checking.comparison import Verdict
from ikp.core.abi import (
    DENSE_HEADER_BYTES,
    MIN_SEGMENT_BYTES,
    ClockKind,
    Language,
    OverflowMode,
    segment_bytes,
)
from ikp.core.segment import EVERYTHING, Selection, Spec, select
from ikp.driver import cuda
from ikp.errors import PatchError
from ikp.probes.kept_code import KEPT, keep
from ikp.session import current
from ikp.session.current import Session
from ikp.session.service import service_of
from ikp.signals import deferred
from ikp.unedited.plan import Plan
from ikp.verbs.dsl import intern

if TYPE_CHECKING:
    from ikp.probes.made_patch import Patch

PER_THREAD: Final = 2
"""The handle of the default stream of whichever thread names it."""


class Counts(Protocol):
    """What counts launches, as far as buffers are taken for it."""

    recorded: Counter[str]


@dataclass(slots=True)
class Launch:
    """A launch that is to be recorded, whoever makes it.

    ``buffer`` returns a session's buffer for how it is recorded, a grid, the warps of a block, the
    records of a warp where these are known, and who records; None where the session has ended. It,
    ``tell`` and ``drop`` must not hold the launch: a buffer is read back once nobody holds it any
    more, and what is in a cycle is held until Python collects those.
    """

    plan: Plan
    language: Language
    buffer: Callable[[Plan, tuple[int, int, int], int, int | None, Selection], Any]
    selection: Selection = EVERYTHING  # which warps and blocks a user chose
    otherwise: Plan | None = None  # what it is to be recorded as where ``plan`` can't be
    reached: bool = False  # it was made
    patch: Patch | None = None  # what was launched
    verdict: Verdict | None = None  # how its results compare with the plain kernel's
    tell: Callable[[Launch], None] | None = None  # says what is known, where nobody else does
    drop: Callable[[], None] | None = None  # forgets its buffer: it was not launched

    def heeded(self, patch: Patch) -> Selection:
        """Return which warps and blocks record, as the code does that is launched."""
        return patch.sample if self.selection == EVERYTHING else self.selection


class _Wanted(threading.local):
    launch: Launch | None = None
    others: int = 0
    over: str = ""  # the kernel, in whose launch they are, of which no more is recorded


wanted = _Wanted()
"""What this thread launches next, where that is known; and how many calls of its own are under way
in which nothing else is to be recorded."""


@contextmanager
def others() -> Iterator[None]:
    """Have nothing recorded that this thread launches meanwhile, except what is wanted."""
    wanted.others += 1
    try:
        yield
    finally:
        wanted.others -= 1


def pass_by(name: str, call: Callable[..., object], *args: object, **kwargs: object) -> object:
    """Launch a kernel of which no later launch is recorded, nor anything in it, by its own call.

    Each launch of a program may come here: so this is no context manager, which takes 1 us.
    """
    before = wanted.over
    wanted.others += 1
    wanted.over = name
    try:
        return call(*args, **kwargs)
    finally:
        wanted.others -= 1
        wanted.over = before


@contextmanager
def apart(stream: int) -> Iterator[None]:
    """Allocate and load where a CUDA graph that a stream captures does not see it."""
    if not cuda.capturing(stream):
        yield
        return
    import torch

    with cuda.relaxed(), torch.cuda.stream(_beside()):
        yield


def beside(prof: Any, stream: int) -> Callable[[Callable[[], None]], None]:
    """Return how to queue a copy on a stream before a launch that is under way.

    Inside the program's own call into the CUDA runtime, CUPTI gives the copy that call's number:
    two records have one then, and torch.profiler fails. So another thread queues it. A capture
    makes no records, and the default stream of each thread is another one.
    """
    if stream == PER_THREAD or cuda.capturing(stream):
        return _here
    return service_of(getattr(prof.data, "device", None)).call


def _here(job: Callable[[], None]) -> None:
    job()


@cache
def _beside() -> Any:
    """Return a stream that nobody captures."""
    import torch

    return torch.cuda.Stream()


def take() -> Launch | None:
    """Return the launch that this thread is to record now, once."""
    launch, wanted.launch = wanted.launch, None
    if launch is not None:
        launch.reached = True
    return launch


def _check(text: str) -> None:
    """Refuse what records in machine code can't do.

    Args:
        text: of the spec that the session asks for.

    Raises:
        SpecError: it is not what they do.
    """
    spec = Spec.parse(text)
    wrong = [
        text
        for text, asked in (
            (f"clock='{spec.clock.name.lower()}'", spec.clock is not ClockKind.CYCLES),
            ("overflow='wrap'", spec.overflow is not OverflowMode.STOP),
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
        most: records that a warp makes; None where that is not known.
        selection: which warps and blocks record.
    """
    sample = {"blocks": selection} if selection.others else {}
    if most is None and selection.count_slots(math.prod(grid), warps):
        return {**sample, "grid": grid, "num_warps": warps}
    # Where nobody is chosen, there is room all the same: by that, the kernel knows of the launch.
    slots = selection.count_slots(math.prod(grid), warps, least=1)
    size = segment_bytes(slots, max(most or 0, 2), header_bytes=DENSE_HEADER_BYTES)
    size += DENSE_HEADER_BYTES * selection.count_headers(math.prod(grid), warps)
    return {**sample, "size": max(size, MIN_SEGMENT_BYTES)}


def take_buffer(
    counts: Counts, session: Session, label: str, plan: Plan, options: dict[str, Any]
) -> Any:
    """Take a session's buffer for a launch, and count it; None where the session has ended.

    Raises:
        SpecError: the session asks for what records in machine code can't do.
    """
    with deferred():
        prof = current.buffer(session, label, options)
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
    launch: Launch,
    *,
    shared: int,
    shown: str = "",
    block: tuple[int, int, int] | None = None,
    argue: bool = False,
    spare: bool = False,
    grid: Grid,
    assemble: Callable[[str], bytes] | None = None,
) -> Patch:
    """Put records into a kernel as a launch asks for it, and keep the result for ``ikp inspect``.

    Args:
        code: the cubin.
        name: the kernel's, as the compiler wrote it.
        ptx: its PTX, where that is known.
        launch: the first one.
        shared: bytes of shared memory that a block has.
        shown: what traces call the kernel, where that is another name.
        block: threads of a block, where the kernel does not say.
        argue: whether whoever launches it can pass one more argument.
        spare: whether the last 16 bytes of its arguments are whoever launches it's to set.
        grid: what is known of its launches' blocks.
        assemble: makes machine code of PTX, as the cubin was made; where records go into that.

    Raises:
        PatchError: it can't be patched, or is not to be.
        KernelError: what was chosen has no code in it.
    """
    # A program that records no launch does without all of it.
    from ikp.sass.assembly.chips import untested_asked

    if os.environ.get("IKP_PATCH") == "0":
        raise PatchError("IKP_PATCH=0 in the environment says that no machine code is changed.")
    plan = launch.plan
    options: dict[str, Any] = {"detail": plan.detail, "language": launch.language}
    options |= {"block": block, "shared": shared, "select": grid.select}
    with in_words(name, shown):
        if assemble is not None:
            patched = _marked(code, name, ptx, assemble, options)
        else:
            options |= {"lines": plan.lines, "functions": plan.functions, "ranges": plan.ranges}
            options |= {"max_overhead": plan.max_overhead, "argue": argue, "spare": spare}
            options |= {"flat": grid.flat, "sure": grid.sure, "blocks": grid.blocks}
            patched = _patched(code, name, options | {"ptx": ptx, "untested": untested_asked()})
    for each in patched.names:
        intern(each, shown if each == name else "")
    return patched


def _marked(
    code: bytes, name: str, ptx: str, assemble: Callable[[str], bytes], options: dict[str, Any]
) -> Patch:
    """Put records into a kernel's PTX, and keep what comes of it."""
    from ikp.ptx.marking import mark

    made = mark(ptx, code, name, assemble, **options)
    plain = None if made.patch.declared is None else code
    return replace(made.patch, kept=keep(made.patch, name, made.text, options["shared"], plain))


def _patched(code: bytes, name: str, options: dict[str, Any]) -> Patch:
    """Put records into a kernel's machine code, and keep it; or return what was kept before.

    Raises:
        PatchError: the kernel is refused, now or before.
    """
    from ikp.probes.kept_patch import KeptPatch

    place = KeptPatch.of(code, name, options)
    known = place.read() if place is not None else None
    if isinstance(known, str):
        raise PatchError(known)
    if known is not None:
        return known
    from ikp.probes.patch import patch  # with all that patches: a tenth of a second

    try:
        made = patch(code, name, **options)
    except PatchError as error:
        if place is not None:
            place.write(str(error))
        raise
    made = replace(made, kept=keep(made, name, options["ptx"], options["shared"], code))
    if place is not None:
        place.write(made)
    return made


def tell(session: Session, label: str, launch: Launch) -> None:
    """Have a trace say what is known of a kernel that was launched with records.

    Args:
        session: what records it.
        label: the kernel's.
        launch: how it was launched.
    """
    if launch.verdict is not None:
        _add(session, f"check of {label}", launch.verdict.text)
    if launch.patch is not None and launch.patch.kept:
        _add(session, f"{KEPT}{label}", launch.patch.kept)
    if launch.patch is not None and launch.patch.told:
        session.facts[f"chosen in {label}"] = "\n".join(launch.patch.told)


def _add(session: Session, key: str, text: str) -> None:
    """Have a trace say something of one more of a kernel's specialisations."""
    known = session.facts.get(key, "").splitlines()
    session.facts[key] = "\n".join(dict.fromkeys([*known, text]))
