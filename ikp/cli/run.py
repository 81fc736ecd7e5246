"""``ikp run``: a whole program, its kernels marked without being edited."""

from __future__ import annotations

import os
import re
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ikp.cli.program import Outcome, as_program, run
from ikp.cli.run_report import MIB, report, say
from ikp.core.options import CLOCKS
from ikp.core.patterns import dotted
from ikp.core.ranks import PLACE, current_rank, with_rank
from ikp.errors import UsageError

if TYPE_CHECKING:
    from ikp.auto.everything import Everything
    from ikp.core.session import profile


@click.command(
    "run",
    short_help="Run a program and profile its kernels, unedited.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.option("-m", "as_module", is_flag=True, help="TARGET is a module, as in python -m.")
@click.option(
    "--detail",
    type=click.Choice(["kernel", "loops", "ops"]),
    help="What to mark: kernels; also loops and iterations; also each load, store, dot, wait, "
    "barrier and call of a helper.  [default: loops, or kernel with --lines]",
)
@click.option(
    "--lines", metavar="FILE:A-B", multiple=True, help="Also mark these lines. Can be repeated."
)
@click.option(
    "--level",
    type=click.Choice(["source", "scheduled"]),
    default="source",
    show_default=True,
    help="Put marks where the author wrote an operation, or where the compiler moved it.",
)
@click.option(
    "--mode",
    type=click.Choice(["timeline", "totals"]),
    default="timeline",
    show_default=True,
    help="Record each range, or only how often and how long in all, which costs less.",
)
@click.option("--kernel", metavar="GLOB", help="Only kernels named so: matmul, ops.*, *mm*.")
@click.option(
    "--launch",
    metavar="A:B",
    default=":8",
    show_default=True,
    help="Which launches of each kernel, counted from 0: 3, 3:5, :8, or : for all.",
)
@click.option(
    "--clock",
    type=click.Choice(CLOCKS),
    default=CLOCKS[0],
    show_default=True,
    help="What ranges are timed with; the 64-bit ones where a range takes longer than 2 s.",
)
@click.option("--blocks", metavar="A:B:STEP", help="Record only these blocks of each launch.")
@click.option("--warps", metavar="N,A-B", help="Record only these warps of each block.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Where to write the trace. Without it: "
    "ikp-NAME.pftrace in this folder, replaced each time.",
)
@click.option("--force", is_flag=True, help="Overwrite the file given with --out.")
@click.option(
    "--buffer",
    "buffer_mib",
    type=click.IntRange(1, 2047),
    metavar="MIB",
    help="Room for the records of one launch. Without it: 512 records in each warp, but 32 to "
    "256 MiB.",
)
@click.option(
    "--memory",
    "memory_mib",
    type=click.IntRange(1),
    default=2048,
    show_default=True,
    metavar="MIB",
    help="Room for the records of all launches; then kernels run plain.",
)
@click.argument("target")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def command(
    as_module: bool,
    detail: str | None,
    lines: tuple[str, ...],
    level: str,
    mode: str,
    kernel: str | None,
    launch: str,
    clock: str,
    blocks: str | None,
    warps: str | None,
    out: Path | None,
    force: bool,
    buffer_mib: int | None,
    memory_mib: int,
    target: str,
    args: tuple[str, ...],
) -> None:
    r"""Run TARGET, a Python script (or, with -m, a module), with its ARGS, and profile its kernels.

    The program runs as it would without ikp: its arguments, output, exit code and tracebacks are
    its own. Each Triton and Gluon kernel that it launches in this process gets ranges around its
    loops and operations, named by their source lines. A trace, a table and what was left out come
    at the end, on stderr.

    \b
      ikp run train.py --steps 10
      ikp run --detail ops --kernel matmul --launch 3:5 bench.py
      ikp run --lines kernels.py:88-96 -m pytest -q tests/test_kernels.py
    """
    from ikp.auto.everything import Everything
    from ikp.auto.launch import span
    from ikp.auto.plan import plan
    from ikp.core.session import profile

    size = buffer_mib * MIB if buffer_mib else None
    path = _of_rank((out or Path(f"ikp-{_stem(target)}.pftrace")).absolute())
    session = profile(path, force=force or out is None, clock=clock, mode=mode, buffer_size=size)
    launcher = Everything(
        plan(detail, lines, level),
        lambda: session,
        span(launch),
        _choices(blocks, warps),
        kernels=_pattern(kernel),
        room=memory_mib * MIB,
    )
    if not as_module and not Path(target).exists():
        raise UsageError(f"no such file: {target}. For a module, write: ikp run -m {target}")
    process = os.getpid()
    outcome = _profiled(session, launcher, target, args, as_module)
    if os.getpid() == process:
        _finish(session, launcher, outcome)
        report(session, launcher, path)
    sys.exit(outcome.code)  # a child that the program forked ends here, too


def _profiled(
    session: profile, launcher: Everything, target: str, args: tuple[str, ...], as_module: bool
) -> Outcome:
    from ikp.auto.everything import stepping_in

    session.__enter__()
    _only_here(launcher)
    with as_program(target, args, as_module), stepping_in(launcher):
        return run(target, as_module)


def _finish(session: profile, launcher: Everything, outcome: Outcome) -> None:
    """Read the records back and write the trace; the program's own end comes first."""
    session.export = bool(launcher.recorded)
    error = outcome.error
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            session.__exit__(type(error) if error else None, error, None)
        except Exception as lost:  # noqa: BLE001 - whatever a broken GPU raises
            say(f"the trace is lost: {lost}")
    for each in told:
        say(str(each.message))


def _only_here(launcher: Everything) -> None:
    """Let processes that the program forks run plain: what they record would be lost."""
    os.register_at_fork(after_in_child=lambda: setattr(launcher, "session", lambda: None))


def _stem(target: str) -> str:
    return re.sub(r"[^\w.-]", "_", Path(target).stem) or "program"


def _of_rank(path: Path) -> Path:
    """Keep the traces of a multi-process launch apart: ``x.pftrace`` is ``x.rank1.pftrace``.

    ``{rank}`` in the path says where else the rank goes.
    """
    if PLACE in str(path):
        return Path(with_rank(path))
    rank = current_rank()  # a number, whatever the environment says
    if rank is None or os.environ.get("WORLD_SIZE", "1") == "1":
        return path
    return path.with_name(f"{path.stem}.rank{rank}{path.suffix}")


def _pattern(text: str | None) -> re.Pattern[str] | None:
    return dotted(text) if text else None


def _choices(blocks: str | None, warps: str | None) -> dict[str, object]:
    chosen: dict[str, object] = {}
    if blocks is not None:
        chosen["blocks"] = _blocks(blocks)
    if warps is not None:
        chosen["warps"] = _warps(warps)
    return chosen


def _blocks(text: str) -> range:
    parts = text.split(":")
    if 1 <= len(parts) <= 3 and all(not part or part.isdecimal() for part in parts) and text != "":
        if len(parts) == 1:
            return range(int(text), int(text) + 1)
        first, stop, step = (*(int(p) if p else None for p in parts), None)[:3]
        if step != 0:
            return range(first or 0, 1 << 31 if stop is None else stop, step or 1)
    raise UsageError(
        f"--blocks {text!r} names no blocks: write 7 for one, 0:64 for a range, 0:1024:8 for every "
        "eighth."
    )


def _warps(text: str) -> list[int]:
    chosen: list[int] = []
    for part in text.split(","):
        found = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if found is None:
            raise UsageError(f"--warps {text!r} names no warps: write 0, 0,4 or 0-3.")
        chosen += range(int(found[1]), int(found[2] or found[1]) + 1)
    return chosen
