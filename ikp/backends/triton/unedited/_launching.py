"""``Launcher``: decides on each launch of an unedited kernel, and launches it with a buffer.

The launched kernel is an instrumented clone, or the kernel itself with probes in its machine code.
"""

from __future__ import annotations

import inspect
import sys
import threading
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ikp.backends.checked import report
from ikp.backends.labels import Labels
from ikp.backends.launched_grid import LaunchGrid
from ikp.backends.patched import (
    RecordedLaunch,
    chosen,
    is_hooked,
    others,
    shape,
    take_buffer,
    wanted,
)
from ikp.backends.triton.unedited import _by_hand as by_hand
from ikp.backends.triton.unedited._clones import kernel_clone
from ikp.backends.triton.unedited._foreign import JittedFunction, is_jitted
from ikp.backends.triton.unedited._mark_nodes import PROF
from ikp.backends.triton.unedited._repeated import KernelLaunches, NextLaunch
from ikp.backends.triton.unedited._rewrite import Clone
from ikp.backends.triton.unedited._special import Special, Specials, module_and_name
from ikp.core.abi import Language
from ikp.core.segment import Selection
from ikp.core.turns import FIRST, IN_TURN
from ikp.driver import cuda
from ikp.errors import IkpError, IkpWarning, KernelError, PatchError
from ikp.probing import Untyped
from ikp.session import current
from ikp.session.current import Session
from ikp.session.storage import drives_cuda
from ikp.signals import deferred, pass_on
from ikp.unedited.plan import ALL, BEST, Plan, at_level, has_no_end

if TYPE_CHECKING:
    from ikp.backends.ahead import PatchesAhead
    from ikp.backends.patch_input import PatchInput

__tracebackhide__ = True  # pytest shows a launch that fails as it does without ikp
_CAPTURED = "captured in a CUDA graph"
TUNING = "tried out by an autotuner"
_NOTHING = "Triton's interpreter makes nothing"
NOT_CHOSEN = "not among the chosen launches"
_TRITON_WARPS = 4
"""Warps of a block where a launch names no number; Triton's interpreter has one."""


class _Tuning(threading.local):
    depth = 0


_tuning = trials = _Tuning()
"""How many autotuners try kernels in this thread."""


@contextmanager
def tuning() -> Iterator[None]:
    """Run kernels plain: an autotuner compares their times, and marks would change them."""
    here = wanted()
    _tuning.depth += 1
    here.aside.value += 1
    here.tries += 1
    try:
        yield
    finally:
        _tuning.depth -= 1
        here.aside.value -= 1
        here.tries -= 1


def _unheard(starts: bool) -> None:
    """Do nothing: no windows are opened."""


def nothing() -> None:
    """Do nothing: there is no trace to write."""


@dataclass(slots=True)
class Launcher:
    """Decides for each launch of a kernel whether it is recorded, and launches it.

    ``session`` returns the session that records now, or None. ``plain`` counts the launches that
    ran without marks, by kernel and reason.
    """

    plan: Plan
    session: Callable[[], Session | None]
    launches: Sequence[int] = ALL  # in order
    buffer: dict[str, Any] = field(default_factory=dict)  # options of ``prof.buffer``
    seen: Counter[str] = field(default_factory=Counter)
    recorded: Counter[str] = field(default_factory=Counter)
    plain: Counter[tuple[str, str]] = field(default_factory=Counter)
    labels: Labels = field(default_factory=Labels)
    epoch: int = 0  # how often it began anew
    idle: bool = False  # nothing is recorded now
    captures: int = 0  # of CUDA graphs that are under way, as far as the driver's hook sees them
    standby: Callable[[], Session | None] | None = None
    """Returns the session that gives captured launches buffers while nothing is recorded."""
    captured: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By kernel, the number of its latest capture, and how many captures had it before."""
    wakers: list[Callable[[], None]] = field(default_factory=list)
    profiler: Callable[[bool], None] = _unheard
    """Called at the program's cudaProfilerStart (True) and cudaProfilerStop."""
    exits: Callable[[], None] = nothing
    """Called as the program calls C's exit()."""
    ahead: PatchesAhead | None = None
    """Patches kernels that run plain while nothing is recorded; None where no window opens."""
    specials: Specials = field(init=False)
    _kernels: dict[str, KernelLaunches] = field(default_factory=dict)
    """The launches of each kernel in the latest session that recorded some."""

    def __post_init__(self) -> None:
        self.specials = Specials(self.labels)

    def begin_anew(self) -> None:
        """Count all launches from zero, and decide anew on each kernel."""
        for each in (self.seen, self.recorded, self.plain, self.captured):
            each.clear()
        self._kernels.clear()
        self._decide_anew()

    def _decide_anew(self) -> None:
        self.epoch += 1
        for wake in self.wakers:
            wake()

    @property
    def standing(self) -> bool:
        """Whether captured launches get buffers though nothing is recorded."""
        return self.captures > 0 and self.standby is not None

    def capture_begins(self) -> None:
        """Decide anew on each kernel: captures have launches of their own to record."""
        self.captures += 1
        self._decide_anew()

    def capture_ends(self) -> None:
        """Decide on kernels without captures again."""
        self.captures = max(0, self.captures - 1)

    def run(
        self,
        kernel: JittedFunction,
        plain: Callable[..., object],
        /,
        *args: object,
        **kwargs: object,
    ) -> object:
        """Launch ``kernel`` as its own ``run(*args, grid=, warmup=, ...)`` would.

        Args:
            kernel: the jitted function.
            plain: its own ``run``.
            args: arguments of ``run``.
            kwargs: arguments of ``run``.
        """
        special = kernel
        if self.session() is not None:
            if is_jitted(kernel):
                _hook_the_compiler()
            if kwargs.get("warmup"):
                compiled = plain(*args, **kwargs)
                return compiled if compiled is None else Warm(self, kernel, compiled, kwargs)
            if not _tuning.depth:
                special = self.specials.of(kernel, args, kwargs)
        session = self.chosen(special)
        if session is None:
            return plain(*args, **kwargs)
        return self.record(session, special, plain, args, kwargs)

    def special(
        self,
        kernel: JittedFunction,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> JittedFunction:
        """Return a function as a launch specialises it; as it is, where none is recorded."""
        if _tuning.depth or self.session() is None:
            return kernel
        return self.specials.of(kernel, args, kwargs)

    def chosen(self, kernel: JittedFunction, capture: int | None = None) -> Session | None:
        """Return the session that records this launch, or None; count the launch.

        ``capture`` is the number of the CUDA graph's capture that it is in, 0 for none; None where
        torch's current stream says so.
        """
        session = self.session()
        if not current.enabled() or (session is None and not self.standing):
            return None
        if capture is None:
            capture = _capture() if self.captures else 0
        standing = session is None
        if standing and capture and self.standby is not None:
            session = self.standby()
        if session is None:
            return None
        reason = self.reason_for_plain(kernel, session, capture)
        if reason == NOT_CHOSEN and standing:  # launches are counted in each window
            reason = None
        if reason:
            self.count_plain(kernel, reason)
            return None
        return session

    def count_plain(self, kernel: JittedFunction, reason: str, times: int = 1) -> None:
        """Count launches without marks; warn where a CUDA graph's capture is the reason."""
        if reason == _CAPTURED and not self.plain[kernel.__name__, reason]:
            warnings.warn(
                f"{kernel.__name__} is {reason} and runs without marks there: a graph launches "
                "again and again into one buffer. Record a launch outside the capture.",
                IkpWarning,
                stacklevel=6,
            )
        self.plain[kernel.__name__, reason] += times

    def lasts(self, kernel: JittedFunction, session: Session) -> bool:
        """Return whether a session is to record all later launches of a kernel.

        It holds until stocks are revoked (``ikp.session.known_launch``).
        """
        every = has_no_end(self.launches) and self.seen[full_name(kernel)] > self.launches[0]
        asks = self.captures or not current.enabled()
        return every and not asks and self.session() is session

    def count_more(self, kernel: JittedFunction, number: int) -> None:
        """Count recorded launches of a kernel that were not asked about."""
        self.seen[full_name(kernel)] += number
        self.recorded[kernel.__name__] += number

    def over(self, kernel: JittedFunction) -> str | None:
        """Return why no later launch of a kernel is recorded; None where one may be."""
        if self.captures:
            return None
        last = self.launches[-1] if self.launches else -1
        return NOT_CHOSEN if self.seen[full_name(kernel)] > last else None

    @property
    def goes_on(self) -> bool:
        """Whether any later launch, of any kernel, may be recorded; cheaper than to ask of one."""
        return False

    def counted(self, kernel: JittedFunction) -> tuple[str, str] | None:  # noqa: ARG002 - a rule
        """Return the key that counts a kernel's later launches; None while one may be recorded."""
        return None

    def reason_for_plain(
        self, kernel: JittedFunction, session: Session, capture: int = 0
    ) -> str | None:
        """Return why this launch is not recorded, or None.

        Args:
            kernel: the kernel.
            session: the session that would record it.
            capture: the number of the CUDA graph's capture that it is in, 0 for none.
        """
        if _tuning.depth:
            return TUNING
        name = full_name(kernel)
        marked = self.launches_of(name, session) is not None or self.way(kernel).afterwards
        if not marked and _capturing():
            return _CAPTURED
        numbers = self.launches
        if numbers is IN_TURN and (capture or not marked or not is_hooked()):
            numbers = FIRST  # no plain launch is timed
        return None if self._number(name, capture) in numbers else NOT_CHOSEN

    def _number(self, name: str, capture: int) -> int:
        """Return which launch of a kernel this is: all launches of one capture are one."""
        if not capture:
            self.seen[name] += 1
            return self.seen[name] - 1
        latest, number = self.captured.get(name, (0, -1))
        self.captured[name] = capture, number + (latest != capture)
        return self.captured[name][1]

    def way(self, kernel: JittedFunction) -> Plan:
        """Return a kernel's plan, with its level decided."""
        if self.plan.level != BEST or not takes_source(kernel):
            return self.plan
        return at_level(self.plan, "machine" if self.plan.needs_machine_code else "source")

    def look_ahead(self) -> None:
        """Note kernels that run plain while nothing is recorded, to have them patched."""
        from ikp.backends.ahead import PatchesAhead

        self.ahead = PatchesAhead()

    def to_patch(
        self, kernel: JittedFunction, function: int, grid: LaunchGrid
    ) -> PatchInput | None:
        """Return a kernel as a recorded launch like an earlier, plain one has it patched.

        Args:
            kernel: it.
            function: the driver's handle that was launched.
            grid: of the launch.

        Returns:
            It; None where no such launch has its machine code patched.
        """
        plan = self.way(kernel)
        if not is_jitted(kernel) or plan.level not in ("machine", BEST):
            return None
        from ikp.backends.triton.unedited import _machine_code as machine_code

        return machine_code.to_patch(kernel, function, at_level(plan, "machine"), grid)

    def record(
        self,
        session: Session,
        kernel: JittedFunction,
        plain: Callable[..., object],
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> object:
        """Launch a kernel with a buffer of ``session``; plain, where no level can record it."""
        try:
            return self.launch(session, kernel, plain, args, kwargs)
        except PatchError as error:
            pass_on(error)
            if self.plan.level != BEST:
                raise
            reason = f"could not be marked: {error}"
            if not self.plain[kernel.__name__, reason]:
                warnings.warn(f"{kernel.__name__} runs plain: {error}", IkpWarning, stacklevel=3)
            self.count_plain(kernel, reason)
            return plain(*args, **kwargs)

    def launch(
        self,
        session: Session,
        kernel: JittedFunction,
        plain: Callable[..., object],
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> object:
        """Launch the clone that the plan marks, or the kernel itself with probes in its code."""
        launches = self.launches_of(full_name(kernel), session)
        if launches is None:
            plan = self.way(kernel)
            _check(plan, kernel)
            if not plan.afterwards:
                return self._launch_clone(plan, session, kernel, plain, args, kwargs)
            launches = self._begin(plan, session, kernel)
        return self._launch_patched(launches, session, kernel, plain, args, kwargs)

    def launches_of(self, name: str, session: Session) -> KernelLaunches | None:
        """Return the launches of a kernel with probes in its code; None where there were none."""
        launches = self._kernels.get(name)
        return launches if launches is not None and launches.session() is session else None

    def _launch_clone(
        self,
        plan: Plan,
        session: Session,
        kernel: JittedFunction,
        plain: Callable[..., object],
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> object:
        """Launch the clone that ``plan`` marks."""
        label = kernel.__name__
        clone = _clone(kernel, plan)
        launched = _shape(kernel, args, kwargs)
        kwargs = {**kwargs, "grid": launched["grid"]}  # a function is asked once, as without marks
        with deferred():
            named = {"kernel": full_name(kernel)}
            prof = current.buffer(session, label, {**launched, **named, **self.buffer})
        if prof is None:
            return plain(*args, **kwargs)
        try:
            made = clone.run(*args, **{**kwargs, PROF: prof})
        except BaseException:
            session.discard(prof)
            raise
        if plan.ttgir and not Path(plan.ttgir).exists() and hasattr(made, "asm"):
            by_hand.write(Path(plan.ttgir), by_hand.without_mark(made.asm["ttgir"]))
        self.recorded[label] += 1
        session.facts[f"marks in {label}"] = str(plan)
        return made

    def _launch_patched(
        self,
        launches: KernelLaunches,
        session: Session,
        kernel: JittedFunction,
        plain: Callable[..., object],
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> object:
        """Launch the kernel as it was compiled, with probes in its machine code or its PTX.

        Raises:
            KernelError: the chosen code is not in it.
            PatchError: ikp can't insert probes into the compiler's output.
            CheckError: it failed the A/B check: it computes other results than the plain kernel.
        """
        here = wanted()
        here.launch = launch = NextLaunch(launches)
        try:
            made = plain(*args, **kwargs)
        finally:
            here.launch = None
        if not launch.reached:
            self.count_plain(kernel, "launched by another runtime than Triton's")
        if launch.recorded is not None:
            report(self, session, launches.label, launch.recorded)
        return made

    def _begin(self, plan: Plan, session: Session, kernel: JittedFunction) -> KernelLaunches:
        """Return the launches of a kernel in a session, of which there were none yet.

        Raises:
            PatchError: Triton launches otherwise than ikp knows.
        """
        from ikp.backends.triton.unedited import _machine_code as machine_code

        machine_code.need(plan)
        label, full, known = kernel.__name__, full_name(kernel), weakref.ref(session)

        def recorded() -> RecordedLaunch:
            taken: list[Any] = []

            def buffer(
                how: Plan,
                grid: tuple[int, int, int],
                warps: int,
                most: int | None,
                heeded: Selection,
            ) -> Any:
                if (session := known()) is None:
                    return None
                options = {**shape(grid, warps, most, heeded), "kernel": full, **self.buffer}
                prof = take_buffer(self, session, label, how, options)
                taken.extend([] if prof is None else [prof])
                return prof

            session = known()
            launch = RecordedLaunch(
                *(plan, Language.TRITON, buffer, chosen(self.buffer)),
                label=label,
                facts=None if session is None else session.facts,
                taken=taken,
                session=known,
            )
            if plan.level == BEST:
                launch.plan = at_level(plan, "machine")
                launch.otherwise = at_level(plan, "ptx")
            return launch

        made = KernelLaunches(known, label, kernel, recorded, self.recorded)
        self._kernels[full] = made
        return made


@cache
def _hook_the_compiler() -> None:
    """Set the hooks that a session sets, before Triton looks for the kernel among compiled ones.

    Triton's key of a compiled kernel has a part more while a hook on the stages is set. Set inside
    a launch, the hook would have the next launch compile, load and patch the kernel once more.
    """
    from ikp.backends.triton import _hooks as hooks

    hooks.install()


def is_compiled(kernel: JittedFunction) -> bool:
    """Whether a kernel is compiled, by Triton or for the driver's backend, and not interpreted."""
    own = kernel.jitted if isinstance(kernel, Special) else kernel
    if hasattr(type(own), "cache_key"):  # of an object, it takes long to make
        return True
    return hasattr(own, "cache_key") or hasattr(own, "launched")


def takes_source(kernel: JittedFunction) -> bool:
    """Whether a kernel is marked in its source: interpreted, or for no GPU of NVIDIA's."""
    return not is_compiled(kernel) or not drives_cuda()


def _check(plan: Plan, kernel: JittedFunction) -> None:
    """Refuse a level that is not for a kernel.

    Raises:
        KernelError: it is not.
    """
    if plan.level == "source" and not takes_source(kernel):
        raise KernelError(
            "level='source' is for Triton's interpreter and other GPUs. On NVIDIA GPUs, records go "
            "into the finished machine code (level='machine'), where they change nothing else, or "
            "into the PTX that it is made of (level='ptx'): leave the level out for the better one."
        )
    if plan.afterwards and takes_source(kernel):
        other = "this kernel is compiled for other GPUs"
        raise KernelError(
            f"level={plan.level!r} puts records into what a compiler has made for NVIDIA GPUs, and "
            f"{other if is_compiled(kernel) else _NOTHING}. Use level='source'."
        )


class Warm:
    """A kernel compiled ahead with ``warmup``: the plain one, which is marked when launched."""

    def __init__(
        self,
        launcher: Launcher,
        kernel: JittedFunction,
        compiled: Untyped,
        kwargs: dict[str, object],
    ) -> None:
        self._launcher, self._kernel, self._compiled = launcher, kernel, compiled
        # A compiled kernel is launched with all its arguments by position, and no options.
        self._options = {
            name: value
            for name, value in kwargs.items()
            if name not in (*kernel.arg_names, "grid", "warmup")
        }

    def __getattr__(self, name: str) -> Untyped:
        return getattr(self._compiled, name)

    def __getitem__(self, grid: object) -> Callable[..., object]:
        """Return a function that launches the kernel on ``grid``."""

        def launch(*args: object, **kwargs: object) -> object:
            if kwargs:  # a stream of its own
                return self._compiled[grid](*args, **kwargs)
            options = {**self._options, "grid": grid, "warmup": False}

            def plain(*args: object, **_: object) -> object:
                return self._compiled[grid](*args)

            with others():
                return self._launcher.run(self._kernel, plain, *args, **options)

        return launch


def _shape(
    kernel: JittedFunction, args: tuple[object, ...], kwargs: dict[str, object]
) -> dict[str, object]:
    """Return a launch's grid and warps, as ``prof.buffer`` takes them."""
    grid = kwargs["grid"]
    if callable(grid):
        signature = inspect.signature(kernel.fn)
        own = {name: value for name, value in kwargs.items() if name in signature.parameters}
        bound = signature.bind_partial(*args, **own)
        bound.apply_defaults()
        grid = grid(bound.arguments)
    warps = kwargs.get("num_warps", _TRITON_WARPS) if hasattr(kernel, "cache_key") else 1
    return {"grid": grid, "num_warps": warps}


def full_name(kernel: JittedFunction) -> str:
    """Return a kernel's unique name: of a jitted function, with its specialisation's values."""
    return getattr(kernel, "full_name", None) or module_and_name(kernel)


def names(kernel: JittedFunction) -> tuple[str, ...]:
    """Return the names that a pattern may match, the shortest first."""
    return getattr(kernel, "names", None) or (module_and_name(kernel),)


def _clone(kernel: JittedFunction, plan: Plan) -> Clone:
    """Return the instrumented clone of a kernel.

    Raises:
        KernelError: it can't be marked; also where Triton is not as ikp knows it.
    """
    with deferred():
        try:
            return kernel_clone(kernel.jitted if isinstance(kernel, Special) else kernel, plan)
        except IkpError:
            raise
        except Exception as error:
            pass_on(error)
            raise KernelError(
                f"{full_name(kernel)} can't be marked: {type(error).__name__}: {error}. Please "
                "report it, with the version of Triton. Recording it by hand, with ikp.init, may "
                "work."
            ) from error


def _capture() -> int:
    """Return the number of the capture that torch's current stream takes part in; 0 for none."""
    import torch

    if not _capturing():
        return 0
    return cuda.capture_number(int(torch.cuda.current_stream().cuda_stream))


def _capturing() -> bool:
    torch: Untyped = sys.modules.get("torch")  # a program that captures has imported it
    if torch is None:
        return False
    return bool(torch.cuda.is_available() and torch.cuda.is_current_stream_capturing())
