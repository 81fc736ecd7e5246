"""``ikp.instrument``: one unedited kernel with probes, whose launches record in a session."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from os import PathLike
from typing import Any

from ikp import registry
from ikp.errors import UsageError
from ikp.profiling.profile import profile
from ikp.session.current import current
from ikp.unedited.plan import BY_HAND, Plan, plan, span


def instrument(
    kernel: Any,
    *,
    detail: str | None = None,
    lines: str | Iterable[str] | None = None,
    functions: str | Iterable[str] | None = None,
    ranges: bool = False,
    level: str | None = None,
    max_overhead: float | None = None,
    sample: int | None = None,
    check: bool = False,
    ttgir: str | PathLike[str] | None = None,
    launches: str | None = None,
    prof: profile | None = None,
    **buffer: Any,
) -> Any:
    """Return a kernel that launches as ``kernel`` does, with ranges that its source does not have.

    Each launch inside an open session records into a buffer of its own, which is passed aside: the
    launch is written as before. Outside a session the kernel runs as it is, and ``kernel`` stays::

        marked = ikp.instrument(matmul)
        with ikp.profile("matmul.pftrace") as prof:
            marked[grid](a, b, c, M, N, K, BLOCK=64)

    Args:
        kernel: a ``@triton.jit`` or ``@gluon.jit`` function; its autotuner tries without marks.
        detail: "kernel", "loops" (also each iteration), "waits" (not in the source: also what it
            waits for), "ops" (also each load, store, dot, copy, barrier, call of a helper). None:
            "loops"; "kernel" where lines, functions or ranges are chosen.
        lines: also mark these lines of the source: "88-96", "file.py:88-96", or several of them; in
            machine code, each operation of these lines whose instructions lie together; not in PTX.
        functions: also mark the code of these functions, as lines are; in machine code alone.
        ranges: also mark the ranges that the source names (``ikp.range``, IKET's ``range_push``),
            and that leave nothing in the kernel, which gets no buffer; in machine code alone.
        level: where marks go: "machine": the finished machine code, where they change nothing else;
            "ptx": the kernel's PTX, which is assembled again, for any NVIDIA chip; "source": what
            is interpreted, or compiled for others. None: on NVIDIA GPUs machine, or else ptx,
            or else the kernel runs plain, and a warning says why; otherwise source.
        max_overhead: in machine code, the ratio to the plain kernel's time to stay within, by
            an estimate: marks beyond it are left out, the finest first, and reported.
        sample: in machine code, of a launch with more than 256 blocks, one in how many (or in a few
            more, for a grid of several dimensions) records ranges, where ``buffer`` chooses none:
            the others leave when and where they ran, and run the kernel's own code. 1: all record.
            None: 7 to 31, the more the more blocks there are.
        check: in machine code and PTX, compare what the kernel writes with and without
            records, bit for bit, before its first recorded launch: in another process, on copies
            of the memory that it reaches, so that a fault there costs nothing here.
        ttgir: a file of TritonGPU IR with records placed by hand (``ikp.start "name"``, ``ikp.end
            "name"``), in place of all marks. A launch writes it, to be edited, where there is none.
        launches: which launches to record, counted from 0: "3", "3:5", ":8". None is all.
        prof: the session that records; None is the one open at the launch: this thread's or asyncio
            task's own, or else the main thread's.
        buffer: options of ``prof.buffer``: ``size``, ``warps``, ``blocks``, ``granularity``. In
            machine code, blocks that are not chosen run the kernel's own code.

    Raises:
        UsageError: ``kernel`` is no Triton or Gluon kernel, an option is unknown, or two don't go
            together.
        KernelError: it calls ``ikp.init``, or has no source. At a launch: chosen lines hold no
            statement of it, or the level is not for what runs it.
        PatchError: at a launch with level="machine" or "ptx": the machine code, the PTX or the chip
            is not known well enough.
        CheckError: at a launch, check=True: with records, the kernel computes something else,
            faults or never ends. It has run plain.
    """
    marks = plan(
        *(detail, lines, level, functions, max_overhead),
        ranges=ranges,
        check=check,
        sample=sample,
        buffer=[name for name, value in buffer.items() if value is not None],
    )
    marks = marks if ttgir is None else Plan(level=BY_HAND, ttgir=str(ttgir))
    chosen = span(launches)
    session = (lambda: prof) if prof is not None else current
    return _marked(kernel, marks, launches=chosen, session=session, buffer=buffer)


def _marked(kernel: Any, marks: Plan, **options: Any) -> Any:
    for backend in registry.imported():
        if hasattr(backend, "mark"):
            marked = backend.mark(kernel, marks, **options)
            if marked is not None:
                return marked
    raise not_a_kernel(kernel)


def not_a_kernel(value: Any) -> UsageError:
    """Return the error for a value that no backend can mark."""
    if inspect.isfunction(value):
        return UsageError(
            f"{value.__qualname__} is a plain Python function: ikp.instrument takes the kernel, "
            "marked @triton.jit or @gluon.jit."
        )
    return UsageError(
        f"ikp.instrument takes a kernel marked @triton.jit or @gluon.jit (autotuned or with "
        f"heuristics, too), not {type(value).__module__}.{type(value).__qualname__}."
    )
