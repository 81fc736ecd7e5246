"""``ikp run``: a whole program, its kernels marked without being edited."""

from __future__ import annotations

import builtins
import io
import os
import re
import runpy
import sys
import traceback
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING

import click

from ikp.cli.files import next_command
from ikp.errors import IkpError, UsageError

if TYPE_CHECKING:
    from ikp.auto.everything import Everything
    from ikp.core.session import profile
    from ikp.core.trace import Trace

ROWS = 10
MIB = 1 << 20
RECORD_CYCLES = 53
"""A range in a full GPU: two clock reads and a store, the measured upper bound."""


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
@click.option("--kernel", metavar="REGEX", help="Only kernels whose module or name matches.")
@click.option(
    "--launch",
    metavar="A:B",
    default=":8",
    show_default=True,
    help="Which launches of each kernel, counted from 0: 3, 3:5, :8, or : for all.",
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
    default=32,
    show_default=True,
    metavar="MIB",
    help="Room for the records of one launch.",
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
    kernel: str | None,
    launch: str,
    blocks: str | None,
    warps: str | None,
    out: Path | None,
    force: bool,
    buffer_mib: int,
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

    path = (out or Path(f"ikp-{_stem(target)}{_rank()}.pftrace")).absolute()
    session = profile(path, force=force or out is None, buffer_size=buffer_mib * MIB)
    launcher = Everything(
        plan(detail, lines, level),
        lambda: session,
        span(launch),
        _choices(blocks, warps),
        kernels=_pattern(kernel),
        room=max(1, memory_mib // buffer_mib),
    )
    if not as_module and not Path(target).exists():
        raise UsageError(f"no such file: {target}. For a module, write: ikp run -m {target}")
    outcome = _profiled(session, launcher, target, args, as_module)
    _report(session, launcher, path)
    sys.exit(outcome.code)


@dataclass(frozen=True, slots=True)
class _Outcome:
    """How a program ended."""

    code: int
    error: BaseException | None = None


def _profiled(
    session: profile, launcher: Everything, target: str, args: tuple[str, ...], as_module: bool
) -> _Outcome:
    from ikp.auto.everything import stepping_in

    session.__enter__()
    _only_here(launcher)
    with _as_program(target, args, as_module), stepping_in(launcher):
        outcome = _run(target, as_module)
    session.export = bool(launcher.recorded)
    error = outcome.error
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            session.__exit__(type(error) if error else None, error, None)
        except Exception as lost:  # noqa: BLE001 - the program's own end comes first
            _say(f"the trace is lost: {lost}")
    for each in told:
        _say(str(each.message))
    return outcome


def _run(target: str, as_module: bool) -> _Outcome:
    """Run the program to its end, and show its traceback as Python would."""
    try:
        if as_module:
            runpy.run_module(target, run_name="__main__", alter_sys=True)
        elif Path(target).is_file() and not zipfile.is_zipfile(target):
            _run_script(Path(target).absolute())
        else:
            runpy.run_path(target, run_name="__main__")
    except SystemExit as end:
        return _Outcome(_code(end))
    except BaseException as error:  # noqa: BLE001 - whatever ends a program
        error.__traceback__ = _of_program(error.__traceback__)
        _show(error)
        return _Outcome(130 if isinstance(error, KeyboardInterrupt) else 1, error)
    return _Outcome(0)


def _run_script(path: Path) -> None:
    """Run a file as Python's main module, which stays that to the end of the process."""
    main = ModuleType("__main__")
    main.__dict__.update(__file__=str(path), __builtins__=builtins, __spec__=None, __cached__=None)
    sys.modules["__main__"] = main
    with io.open_code(str(path)) as file:
        code = compile(file.read(), str(path), "exec")
    exec(code, main.__dict__)  # noqa: S102 - the program that the user asked to run


def _code(end: SystemExit) -> int:
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    print(end.code, file=sys.stderr)  # noqa: T201 - as Python does
    return 1


def _show(error: BaseException) -> None:
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except Exception:  # noqa: BLE001 - the program's own hook is broken
        traceback.print_exception(error)


def _of_program(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames of ikp and of what runs the program."""
    ours = (str(Path(__file__).parents[1]) + os.sep, "<frozen runpy>", runpy.__file__)
    frames = []
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(ours):
            frames.append(trace)
        trace = trace.tb_next
    for frame, after in zip(frames, [*frames[1:], None], strict=True):
        frame.tb_next = after
    return frames[0] if frames else None


@contextmanager
def _as_program(target: str, args: tuple[str, ...], as_module: bool) -> Iterator[None]:
    """Give the program the arguments and the import path that Python would give it."""
    argv, path = sys.argv[:], sys.path[:]
    sys.argv = [target, *args]
    sys.path[0] = os.getcwd() if as_module else str(Path(target).resolve().parent)  # noqa: PTH109
    try:
        yield
    finally:
        sys.argv[:], sys.path[:] = argv, path


def _only_here(launcher: Everything) -> None:
    """Let processes that the program forks run plain: what they record would be lost."""
    os.register_at_fork(after_in_child=lambda: setattr(launcher, "session", lambda: None))


def _stem(target: str) -> str:
    return re.sub(r"[^\w.-]", "_", Path(target).stem) or "program"


def _rank() -> str:
    """Return what keeps the traces of a multi-process launch apart."""
    several = os.environ.get("WORLD_SIZE", "1") != "1"
    return f".rank{os.environ['RANK']}" if several and "RANK" in os.environ else ""


def _pattern(text: str | None) -> re.Pattern[str] | None:
    try:
        return re.compile(text) if text else None
    except re.error as error:
        raise UsageError(f"--kernel {text!r} is no regular expression: {error}.") from error


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


# What is said at the end.


def _report(session: profile, launcher: Everything, path: Path) -> None:
    for line in _launches(launcher):
        _say(line)
    if not launcher.recorded:
        if not launcher.plain:
            _say(
                "no Triton or Gluon kernel was launched in this process. Kernels of child "
                "processes are not seen: put `ikp run` in front of the child's own command."
            )
        return
    try:
        trace: Trace = session.trace
    except IkpError as error:
        _say(str(error))
        return
    _table(trace)
    _say(_recording(trace))
    if path.exists():
        _say(f"wrote {path} ({path.stat().st_size / 1024:,.0f} KiB).")
        next_command("ikp", "stats", path, why="every range")
        next_command("ikp", "view", path, why="the timeline, in your browser")


def _table(trace: Trace) -> None:
    from ikp.analysis.stats import stats

    table = stats(trace)
    rows = sorted(table.rows, key=lambda row: -(row.total_ns or 0))
    shown = replace(table, rows=tuple(rows[:ROWS]), evidence=())
    click.echo("", err=True)
    click.echo(str(shown).rstrip(), err=True)
    if len(rows) > ROWS:
        click.echo(f"... and {len(rows) - ROWS} more ranges", err=True)
    click.echo("", err=True)


def _recording(trace: Trace) -> str:
    """Say what was lost, and about how much of the kernels' time recording took."""
    attempted = sum(launch.attempted for launch in trace.launches)
    kept = sum(launch.kept for launch in trace.launches)
    text = f"{attempted:,} records, "
    if kept == attempted:
        text += "none dropped"
    else:
        needed = max(launch.needed_bytes for launch in trace.launches)
        text += f"{attempted - kept:,} dropped: --buffer {-(-needed // MIB)} would hold them"
    cycles = [launch for launch in trace.launches if launch.clock.kind == "cycles"]
    resident = float((trace.slots.end_ns - trace.slots.start_ns).sum())
    if not cycles or not resident:
        return text + "."
    spent = attempted * RECORD_CYCLES * cycles[0].clock.ns_per_tick
    share = min(1.0, spent / resident)
    return (
        f"{text}; writing them took at most about {100 * share:.1f} % of the warps' time "
        f"({RECORD_CYCLES} cycles each)."
    )


def _launches(launcher: Everything) -> list[str]:
    """Say which launches were recorded, and why others were not."""
    names = dict.fromkeys([*launcher.recorded, *(name for name, _ in launcher.plain)])
    lines = []
    for name in names:
        recorded = launcher.recorded[name]
        plain = {why: n for (kernel, why), n in launcher.plain.items() if kernel == name}
        if not recorded and set(plain) == {_not_named()}:
            continue
        total = recorded + sum(plain.values())
        parts = [f"{name}: {recorded} of {total} launches recorded"]
        parts += [f"{count} {why}" for why, count in plain.items()]
        if (used := launcher.plans.get(name)) and used[0] != launcher.plan:
            parts.append(f"marked at {used[0]}: its compiler refused marks in the source")
        lines.append("; ".join(parts))
    if launcher.recorded:
        lines.append(f"marks: {launcher.plan}.")
    return lines


def _not_named() -> str:
    from ikp.auto.everything import NOT_NAMED

    return NOT_NAMED


def _say(text: str) -> None:
    click.echo(f"ikp: {text}", err=True)
