"""``ikp run``: runs a whole program with its kernels recorded, unedited."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import click

from ikp.cli._options import format_option
from ikp.cli._target import Target, misplaced, resolved
from ikp.errors import UsageError
from ikp.paths import shown
from ikp.running.measured import RUNS_PLAIN, measured
from ikp.running.program import become, begin_family
from ikp.running.run_options import Options
from ikp.running.startup.sitecustomize import say
from ikp.session.current import PID, PLACE, current_rank, enabled, with_rank
from ikp.session.options import CLOCKS


@click.command(
    "run",
    short_help="Run a program and profile its kernels, unedited.",
    context_settings={"allow_interspersed_args": False},  # what follows TARGET is the program's
)
@click.option("-m", "module", is_flag=True, help="TARGET is a module, as in python -m.")
@click.option("-c", "code", is_flag=True, help="TARGET is the program's text, as in python -c.")
@click.option(
    "--detail",
    type=click.Choice(["kernel", "loops", "waits", "ops"]),
    help="What to mark: kernels; also loops and iterations; also what the machine code waits for "
    "(NVIDIA GPUs); also each load, store, dot, wait, barrier and call of a helper.  [default: "
    "loops, or kernel with --lines, --function and --ranges]",
)
@click.option(
    "--lines", metavar="FILE:A-B", multiple=True, help="Also mark these lines. Can be repeated."
)
@click.option(
    "--function",
    "functions",
    metavar="NAME",
    multiple=True,
    help="Also mark the code of this function (in machine code). Can be repeated.",
)
@click.option(
    "--ranges",
    is_flag=True,
    help="Also mark the ranges that a kernel's source names (ikp.range, IKET's range_push), and "
    "that leave nothing in it, where their code is (in machine code).",
)
@click.option(
    "--level",
    type=click.Choice(["source", "machine", "ptx"]),
    help="Put marks into the finished machine code, where they change nothing else; into the PTX "
    "that it is made of, assembled again; or, in Triton's interpreter and on other GPUs, into the "
    "source.  [default: machine, or else ptx, on NVIDIA GPUs; source elsewhere]",
)
@click.option(
    "--max-overhead",
    type=float,
    metavar="RATIO",
    help="Leave out marks that would make a kernel take longer, by an estimate: 1.05 (in machine "
    "code).",
)
@click.option(
    "--sample",
    type=click.IntRange(1),
    metavar="N",
    help="Of launches with more than 256 blocks, record ranges in one block in N, and of others "
    "when and where they ran: these run the kernel's own code (in machine code). 1: ranges in "
    "all.  [default: 7 to 31, so that 32 blocks or more have ranges]",
)
@click.option(
    "--check",
    "check_results",
    is_flag=True,
    help="Compare each kernel's results with and without records, bit for bit, before its first "
    "recorded launch: in another process, on copied memory. One that faults or differs with "
    "records runs plain (NVIDIA GPUs).",
)
@click.option(
    "--probe",
    type=click.Choice(["addresses", "none"]),
    help="Also run each kernel once more, in another process, on copied memory, where warps of a "
    "few blocks record the addresses of their lanes: sectors for each request, bank conflicts, "
    "active lanes, reuse, trips of loops (NVIDIA GPUs of sm_90). Without it, --detail ops does so "
    "with kernels whose loops or addresses depend on data, and that reach 512 MiB at most.",
)
@click.option(
    "--try",
    "tries",
    type=click.IntRange(1),
    metavar="N",
    help="Also time copies of each kernel from which a barrier, a load, a store or an atomic is "
    "taken out, by line, the first N, in turn with the plain kernel: in another process, on copied "
    "memory. What such a copy computes is wrong; its time says what the line costs (sm_90).",
)
@click.option(
    "--mode",
    type=click.Choice(["timeline", "totals"]),
    default="timeline",
    show_default=True,
    help="Record each range, or only how often and how long in all, which needs hardly any memory "
    "(where marks are in the source).",
)
@click.option("--kernel", metavar="GLOB", help="Only kernels named so: matmul, ops.*, *mm*.")
@click.option(
    "--launch",
    metavar="A:B",
    help="Which launches of each kernel, counted from 0: 3, 3:5, :8, or : for all. Without it, "
    "eight of the first 13: four in a row, and four in turn with plain ones, which measure what "
    "recording took.",
)
@click.option(
    "--replays",
    type=click.IntRange(1),
    metavar="N",
    help="How many replays of each CUDA graph are kept, the first ones; 8 without it. With --idle "
    "or --while, graphs captured before a window are recorded only with it.",
)
@click.option(
    "--clock",
    type=click.Choice(CLOCKS),
    default=CLOCKS[0],
    show_default=True,
    help="What ranges are timed with; the 64-bit ones where a range takes longer than 2 s.",
)
@click.option(
    "--overflow",
    type=click.Choice(["stop", "stream"]),
    default="stop",
    show_default=True,
    help="What a warp keeps when its room is full: stop, its first records. stream, a ring that is "
    "read while the kernel runs, is for kernels with verbs, and refused here.",
)
@click.option(
    "--blocks",
    metavar="A:B:STEP",
    help="Record only these blocks of each launch, ::7 for one in seven, and nothing of others: "
    "with marks in machine code, they run the kernel's own code.",
)
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
    help="Room for the records of one launch. Without it: 512 records in each warp, or what "
    "earlier launches of the kernel attempted if that is more, but at most 256 MiB.",
)
@click.option(
    "--memory",
    "memory_mib",
    type=click.IntRange(1),
    default=2048,
    show_default=True,
    metavar="MIB",
    help="What recordings may take at a time, buffers on the GPU and what was read back of others "
    "(four times its size, as it is decoded); beyond that kernels run plain. The second half "
    "is for two launches of each later kernel, but with --launch : for all.",
)
@click.option(
    "--follow",
    type=click.Choice(["python", "all", "none"]),
    default="python",
    show_default=True,
    help="Which child processes to record, too, each in a file of its own: those that the program "
    "starts as Python, or forks; all that shells and other programs start, for which ikp's "
    "variables are in the environment; or none.",
)
@click.option(
    "--idle",
    is_flag=True,
    help="Record nothing until `ikp attach PID` says so, from another terminal, or the program "
    "calls cudaProfilerStart; a trace for each such window.",
)
@click.option(
    "--while",
    "while_file",
    metavar="FILE",
    help="Record only while FILE is there; a trace for each such window.",
)
@click.option(
    "--host",
    is_flag=True,
    help="Also record what the host does, with torch.profiler, into the same .pftrace: ranges of "
    "record_function and torch.cuda.nvtx, operators, CUDA calls, and all kernels and copies on the "
    "GPU, from torch's first use of it on.",
)
@click.option(
    "--host-seconds",
    type=click.FloatRange(0, min_open=True),
    default=60.0,
    show_default=True,
    metavar="S",
    help="With --host: record the host so long, as its memory grows with each call.",
)
@format_option(
    "text",
    "json",
    text="json: also write the end of the run as NAME.run.json beside the trace, with all kernels, "
    "the verdict, and each process.",
)
@click.option(
    "--merge/--no-merge",
    default=True,
    show_default=True,
    help="Where several processes have left a .pftrace, 64 MiB together at most, end with one of "
    "all of them, NAME.all.pftrace, on one axis.",
)
@click.option(
    "--no-explain",
    is_flag=True,
    help="End with a table of ranges, and not with what took the time: kernels by their time, and "
    "findings on the first of them.",
)
@click.argument("target")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def command(
    module: bool,
    code: bool,
    out: Path | None,
    force: bool,
    target: str,
    args: tuple[str, ...],
    no_explain: bool,
    **chosen: Any,
) -> None:
    """Run TARGET as python would, and profile its kernels.

    TARGET is a script, a folder or zip file with a __main__.py, or - for stdin; with -m, a module;
    with -c, the program's text. It may also be python and what follows it, or the name of a program
    that pip has installed. Its ARGS, output, exit code, signals and tracebacks are its own.
    Each kernel that it launches, in its process and its Python children, gets ranges around its
    loops and operations, named by their source lines. At the end come, on stderr, what was left
    out, kernels by their time, findings on the first of them, and the commands that say more.

    \b
      ikp run train.py --steps 10
      ikp run --detail ops --kernel matmul --launch 3:5 bench.py
      ikp run --lines kernels.py:88-96 -m pytest -q tests/test_kernels.py
    """  # noqa: D301 - \b is click's
    follow = chosen["follow"] != "none"
    program = resolved(_form(module, code), target, args, followed=follow)
    stem = _stem(program.name, program.form)
    if chosen["idle"] and not follow:
        raise UsageError("--idle needs --follow python or all, by which `ikp attach` finds it.")
    if chosen["while_file"]:
        chosen["while_file"] = os.path.abspath(chosen["while_file"])  # noqa: PTH100
    template = (out or Path(f"ikp-{stem}.pftrace")).absolute()
    path = _of_process(template, launcher=program.launches)
    chosen |= {"template": str(template), "explain": not no_explain, "folder": os.getcwd()}  # noqa: PTH109
    options = Options(path=str(path), force=force or out is None, **chosen)
    options.check()
    if text := misplaced(program, _own_options(command), _own_options(command, flags=True)):
        say(text)
    record = _is_recorded(program, target)
    family = begin_family(options.follow) if record and follow else None
    become(program.words, str(options) if record else None, family)


def _form(module: bool, code: bool) -> str:
    if module and code:
        raise UsageError("-m and -c say two things of TARGET: give one.")
    return "-m" if module else "-c" if code else ""


def _own_options(of: click.Command, *, flags: bool = False) -> list[str]:
    """Return the options of a command, or those that take no value."""
    some = [each for each in of.params if not flags or getattr(each, "is_flag", False)]
    return [name for each in some for name in each.opts if name.startswith("--")]


def _is_recorded(program: Target, target: str) -> bool:
    """Whether a program is recorded; say so where it can't be."""
    if program.missing:  # Python says so, too
        say(f"no such file: {shown(target)}. For a module, write: ikp run -m {shown(target)}")
        return False
    if enabled() and measured():
        say(RUNS_PLAIN)
        return False
    return enabled()


def _stem(target: str, form: str) -> str:
    """Return the name of a program for its trace's file name."""
    if form == "-c" or target == "-":
        return "stdin" if target == "-" else "command"
    name = target if form == "-m" else Path(target).absolute().stem
    return re.sub(r"[^\w.-]", "_", name) or "program"


def _of_process(path: Path, *, launcher: bool) -> Path:
    """Return the path of the first process's trace.

    A launcher has no rank, and its children do: ``{rank}`` is ``launcher`` there.
    """
    text = str(path).replace(PID, str(os.getpid()))
    if launcher and PLACE in text and current_rank() is None:
        return Path(text.replace(PLACE, "launcher"))
    return _of_rank(Path(text))


def _of_rank(path: Path) -> Path:
    """Keep the traces of a multi-process launch apart: ``x.pftrace`` is ``x.rank1.pftrace``.

    ``{rank}`` in the path says where else the rank goes.
    """
    if PLACE in str(path):
        return Path(with_rank(path))
    rank = current_rank()
    if rank is None or os.environ.get("WORLD_SIZE") == "1":
        return path
    return path.with_name(f"{path.stem}.rank{rank}{path.suffix}")
