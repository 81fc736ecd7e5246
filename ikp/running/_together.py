"""The traces of a run's processes in one file, written as the run ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ikp.paths import shown
from ikp.running.answer import Command
from ikp.running.process_parts import near
from ikp.running.startup.sitecustomize import say
from ikp.session.current import PLACE
from ikp.signals import pass_on

if TYPE_CHECKING:
    from ikp.running.run_options import Options
    from ikp.trace import Trace

MOST_BYTES: Final = 64 << 20
"""Of files that the end of a run joins: 24 MB with 252,000 slices of two hosts take 7 s."""

_LONG_BYTES: Final = 4 << 20
"""Of files that take more than a second: a line says so before."""
_MOST_NAMED: Final = 4


def target(path: str, options: Options) -> Path:
    """Return the file of all processes: ``x.all.pftrace``, or the template's with rank ``all``.

    Args:
        path: of the first process's trace.
        options: of the run.
    """
    own = Path(path)
    if PLACE in options.template:
        return own.with_name(Path(options.template).name.replace(PLACE, "all"))
    return own.with_name(f"{own.stem}.all{own.suffix}")


def join(
    wrote: Sequence[str], into: Path, open_traces: Mapping[str, Trace], options: Options
) -> bool:
    """Write one file of all traces that a run wrote; return whether it is there.

    It says what it wrote, or why not. No error is raised: each process's file is there.

    Args:
        wrote: the files, two or more.
        into: the file of all.
        open_traces: those in memory, by their files.
        options: of the run.
    """
    try:
        if why := _refused(wrote, options):
            say(f"not joined into one file: {why}.")
            return False
        if (size := _bytes(wrote)) >= _LONG_BYTES:
            say(f"joining {len(wrote)} files, {size >> 20} MiB, into {shown(into)} (--no-merge).")
        _join([Path(each) for each in wrote], into, open_traces, force=options.force)
    except KeyboardInterrupt:
        say(f"{shown(into)} was not written: interrupted.")
    except Exception as error:  # noqa: BLE001 - each process's trace is written
        pass_on(error)
        say(f"{shown(into)} was not written: {error}")
    else:
        return True
    return False


def command(wrote: Sequence[str], whole: Path, folder: str, *, joined: bool) -> Command:
    """Return the command that shows the file of all, or that makes it, as typed in ``folder``."""
    target = near(str(whole), folder)
    if joined:
        return Command(("ikp", "view", target), "all processes on one axis")
    some = wrote if len(wrote) <= _MOST_NAMED else [*wrote[:_MOST_NAMED], "..."]
    words = [near(each, folder) for each in some]
    return Command(("ikp", "merge", *words, target), "all processes in one trace")


def _refused(wrote: Sequence[str], options: Options) -> str:
    """Return why files are not joined here; nothing where they are."""
    from ikp.profiling.merging import is_picture

    if not options.merge:
        return "--no-merge"
    if options.is_idle:
        return "each window has a file of its own"
    if not all(is_picture(Path(each)) for each in wrote):
        return "a .pftrace alone holds all that processes did"
    if (size := _bytes(wrote)) > MOST_BYTES:
        return f"{size >> 20:,} MiB take long, and the end of a run joins {MOST_BYTES >> 20}"
    return ""


def _bytes(wrote: Sequence[str]) -> int:
    return sum(Path(each).stat().st_size for each in wrote)


def _join(
    sources: Sequence[Path], into: Path, open_traces: Mapping[str, Trace], *, force: bool
) -> None:
    from ikp.profiling.merging import Merged
    from ikp.registry import check_target
    from ikp.trace import load

    check_target(into, force)  # before the work of reading
    traces = [
        open_traces[str(each)] if str(each) in open_traces else load(each) for each in sources
    ]
    merged = Merged.of(sources, traces)
    merged.save(into, force=force)
    for line in merged.lines:
        say(line)
    size = f"{into.stat().st_size / 1024:,.0f} KiB"
    exactly = f"; {merged.within}" if merged.within else ""
    say(f"wrote {shown(into)} ({size}): {len(sources)} processes on one axis{exactly}.")
