"""A hook on Triton's launches that runs a patched copy of a kernel: probes in its cubin or its PTX.

Triton launches compiled kernels through ``CompiledKernel.run``. There, for a launch that is to be
recorded, a patched copy of the cubin takes the plain one's place: same arguments, grid and stream.
No source is compiled again (marked PTX is assembled again), and Triton's caches stay as they are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from ikp.backends.checked import PlainLaunch, add_arguments, checked
from ikp.backends.further_runs import run_further
from ikp.backends.launched_grid import LaunchGrid
from ikp.backends.loaded import Module, modules
from ikp.backends.patch_input import PatchInput
from ikp.backends.patched import RecordedLaunch, aside, made, taken, wanted
from ikp.backends.timed import timed
from ikp.backends.triton.unedited import _arguments as argument_values
from ikp.backends.triton.unedited import _foreign as foreign
from ikp.backends.triton.unedited._repeated import KnownLaunch, NextLaunch, passing
from ikp.core.abi import Language
from ikp.driver import cuda, cuda_functions, devices
from ikp.errors import InspectError, PatchError
from ikp.probing import Feature, Untyped
from ikp.session.known_launch import SlowError

if TYPE_CHECKING:
    from ikp.probes.made_patch import Patch
    from ikp.unedited.plan import Plan

__tracebackhide__ = True  # pytest shows a launch that fails as it does without ikp


def need(plan: Plan) -> None:
    """Hook into Triton's launches, for kernels that are recorded by a plan.

    Raises:
        PatchError: Triton launches otherwise than ikp knows.
    """
    _need(foreign.LAUNCHES)
    if plan.level == "ptx":
        _need(foreign.ASSEMBLES)
    install()


@functools.cache
def install() -> None:
    """Hook into Triton's launches; they stay as they are where no recorded launch is pending."""
    foreign.step_into_launches(launched)


def launched(compiled: Untyped, plain: Callable[..., object]) -> Untyped:
    """Return what makes this thread's launch of a compiled kernel, recorded if one is pending.

    Args:
        compiled: the kernel.
        plain: Triton's launcher of it.
    """
    here = wanted()
    launch, here.launch = here.launch, None
    if launch is None:
        return plain
    if launch.reaches is not None:
        return functools.partial(launch.reaches, launched, compiled, plain)
    return functools.partial(_next, compiled, plain, launch)


def _next(
    compiled: Untyped,
    plain: Callable[..., object],
    launch: NextLaunch,
    x: int,
    y: int,
    z: int,
    stream: int,
    function: int,
    *rest: object,
) -> object:
    """Launch a kernel with records, as an earlier launch or anew."""
    cuda.need_context()  # a thread's first call of CUDA may be this launch
    if not cuda.capturing(stream):
        known = launch.known(compiled, plain, stream, function, (x, y, z))
        if known is not None:
            try:
                return known.launch(launch.launches, x, y, z, stream, function, *rest)
            except SlowError:  # it is none like that one any more
                pass
    made = launch.made()
    return _run(compiled, plain, made, x, y, z, stream, function, *rest, keep=launch.keep)


def _run(
    compiled: Untyped,
    plain: Callable[..., object],
    launch: RecordedLaunch,
    x: int,
    y: int,
    z: int,
    stream: int,
    function: int,
    *rest: object,
    keep: Callable[[KnownLaunch], None] | None = None,
) -> object:
    """Launch the patched function in the place of the plain one.

    ``keep`` has later launches repeat this one, if there is nothing more to find out.
    """
    grid = (x * getattr(compiled.metadata, "num_ctas", 1), y, z)
    captured = cuda.capturing(stream)
    with aside() if captured else nullcontext():
        known = LaunchGrid.of(grid, launch.selection, launch.plan.sample, captured=captured)
        spare = foreign.has_no_scratch(plain)
        module = _module(compiled, launch, function, stream, known, spare)
        chosen = launch.heeded(module.patch)
        patch = module.patch
        buffer = functools.partial(
            launch.buffer, launch.plan, grid, patch.warps, patch.most, chosen
        )
        prof = taken(buffer, stream, buffer, captured=captured)
    if prof is None:
        return plain(x, y, z, stream, function, *rest)
    launch.patch = module.patch
    add_arguments(launch, functools.partial(_values, compiled, rest))
    cuda_functions.like(module.function, function, cache=foreign.cache_of(compiled))

    def launched() -> PlainLaunch:
        again = functools.partial(_plainly, plain, x, y, z, function, rest)
        return _launched(compiled, function, again, rest)

    if launch.plan.check:
        words = module.words(prof, grid, module.patch.warps, chosen)
        verdict = checked(module, stream, prof, words, launched, launch.session)
        launch.verdict = verdict or launch.verdict
        if launch.verdict is not None and launch.verdict.refused:
            return plain(x, y, z, stream, function, *rest)
    run_further(
        *(module, stream, prof, launch, lambda: str(compiled.asm.get("ptx", "")), "", launched)
    )
    words = module.point(prof, grid, module.patch.warps, stream, chosen, captured=captured)
    launcher = passing(module, plain, words)
    if getattr(compiled.metadata, "launch_pdl", False):
        timed.overlap()
    timing = not captured and timed.recorded(function, grid, launch.label, launch.facts)
    found = launch.verdict or launch.addresses or launch.tried
    if keep is not None and not captured and not found:
        keep(KnownLaunch(compiled, plain, module, prof, (grid, patch.warps, chosen)))
    failed = True
    try:
        result = launcher(x, y, z, stream, module.function, *rest)
        failed = False
        return result
    finally:
        if timing:
            timed.ended(failed=failed)


def _values(compiled: Untyped, values: tuple[object, ...]) -> str:
    """Return the values of a launch's parameters, as a trace keeps them."""
    from ikp.sass.cubins.cubin import Cubin

    kernel = Cubin.read(bytes(compiled.asm["cubin"])).kernel(compiled.name)
    names, types = foreign.argument_names(compiled), foreign.argument_types(compiled)
    return argument_values.as_text(kernel.parameters, names, types, values)


def _plainly(
    plain: Callable[..., object],
    x: int,
    y: int,
    z: int,
    function: int,
    rest: tuple[object, ...],
    stream: int,
) -> object:
    """Launch the plain kernel on another stream."""
    return plain(x, y, z, stream, function, *rest)


def _launched(
    compiled: Untyped,
    function: int,
    launch: Callable[[int], object],
    values: tuple[object, ...],
) -> PlainLaunch:
    """Return a launch of the plain kernel, for another process to repeat.

    Args:
        compiled: the kernel.
        function: the driver's handle.
        launch: launches it on a stream.
        values: arguments of Triton's launcher.
    """
    from ikp.checking.captured import captured
    from ikp.sass.cubins.cubin import Cubin

    code = bytes(compiled.asm["cubin"])
    shape, parameters = captured(launch, Cubin.read(code).kernel(compiled.name).parameters)
    shape = replace(shape, settings=cuda_functions.settings(function), limits=devices.limits())
    names = argument_values.names(values, foreign.argument_names(compiled))
    return PlainLaunch(compiled.name, code, shape, parameters, names=names)


def _need(feature: Feature) -> None:
    if not foreign.TRITON.has(feature):
        raise PatchError(feature.lost)


def _module(
    compiled: Untyped,
    launch: RecordedLaunch,
    function: int,
    stream: int,
    grid: LaunchGrid,
    spare: bool,
) -> Module:
    """Return a loaded kernel with probes in its machine code; else, if it can't be, in its PTX."""

    def get(why: str = "") -> Module:
        known = grid.of_ptx if launch.plan.level == "ptx" else grid
        # A handle alone may have been another kernel's, which the program has unloaded.
        key = function, str(getattr(compiled, "hash", "")), str(launch.plan), known, spare
        make = functools.partial(_patch, compiled, launch, why, known, spare)
        return modules.get(key, compiled.name, stream, make)

    if launch.otherwise is None:
        return get()
    try:
        return get()
    except (PatchError, InspectError) as error:
        refused = str(error)
        launch.plan, launch.otherwise = launch.otherwise, None
    if lost := launch.plan.lost_in_ptx:
        raise PatchError(f"{refused} Marks in its PTX have no {lost}.")
    try:
        _need(foreign.ASSEMBLES)
        return get(f"{refused} So ")
    except PatchError as error:
        raise PatchError(refused if str(error) in refused else f"{refused} {error}") from error


def kept(compiled: Untyped) -> str:
    """Return the path of a compiled kernel's latest patched code; "" where there is none."""
    found = modules.patched(getattr(compiled, "function", None))
    return found.kept if found else ""


def _patch(
    compiled: Untyped, launch: RecordedLaunch, why: str, grid: LaunchGrid, spare: bool
) -> Patch:
    """Insert probes into a kernel.

    Args:
        compiled: the kernel.
        launch: the launch, with its plan.
        why: the reason for probes in its PTX, as text, where the user did not ask for that.
        grid: properties and selection of its launches' blocks.
        spare: whether the last 16 bytes of its arguments are the launcher's to set.
    """
    shared = int(getattr(compiled.metadata, "shared", 0))
    code, ptx = bytes(compiled.asm["cubin"]), str(compiled.asm.get("ptx", ""))
    of_ptx = launch.plan.level == "ptx"
    try:
        assembler = functools.partial(_assembled, compiled) if of_ptx else None
        patch = made(
            *(code, compiled.name, ptx, launch),
            shared=shared,
            grid=grid,
            assemble=assembler,
            spare=spare,
        )
    except PatchError as error:
        place = "PTX" if of_ptx else "machine code"
        raise PatchError(f"{compiled.name} can't be recorded in its {place}: {error}") from error
    if not why:
        return patch
    first, *notes = patch.notes
    return replace(patch, notes=(f"{why}{first}", *notes))


def to_patch(kernel: Untyped, function: int, plan: Plan, grid: LaunchGrid) -> PatchInput | None:
    """Return a compiled kernel as a recorded launch like an earlier, plain one has it patched.

    Args:
        kernel: the jitted function.
        function: the driver's handle that was launched.
        plan: of the machine code.
        grid: of the launch.

    Returns:
        It; None where the function has no such kernel any more.
    """
    compiled = foreign.loaded(kernel).get(function)
    if compiled is None:
        return None
    return PatchInput.of(
        *(bytes(compiled.asm["cubin"]), compiled.name, str(compiled.asm.get("ptx", ""))),
        *(plan, Language.TRITON),
        shared=int(getattr(compiled.metadata, "shared", 0)),
        spare=foreign.has_no_scratch(compiled.run),
        grid=grid,
    )


def _assembled(compiled: Untyped, ptx: str) -> bytes:
    try:
        return foreign.assemble(compiled, ptx)
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:300]
        raise PatchError(f"the assembler refuses its PTX with records: {reason}") from error
