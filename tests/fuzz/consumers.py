"""What reads a trace, given traces out of mutated files that the reader let through."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable
from contextlib import redirect_stderr, suppress
from functools import cache
from pathlib import Path
from random import Random

import ikp
from ikp import edit
from ikp.analysis.diff.compare import diff
from ikp.errors import IkpError
from ikp.exporters.perfetto import PerfettoExporter
from ikp.trace import Trace, load
from ikp.viewer.first_look import first_look
from ikp.viewer.part import TracePart, write_part
from tests.fuzz import files
from tests.fuzz.limits import limited

FORMATS = (".pftrace", ".json", ".csv", ".parquet", ".hatchet", ".folded", ".speedscope.json")
UNITS = (None, "sm", "block", "warp", "role", "rank", "iteration", "window:10us", "window:1ns")

Consumer = Callable[[Trace, Random, Path], object]
"""Takes a trace that was read, and the file that it was read from."""


@cache
def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="ikp-fuzz-"))


def _stats(trace: Trace, random: Random, _: Path) -> object:
    found = trace.stats(by=random.choice(UNITS), histogram=random.random() < 0.5)
    return found.to_dict(), str(found)


def _explain(trace: Trace, random: Random, _: Path) -> object:
    found = trace.explain(random.randrange(len(trace.launches)) if trace.launches else None)
    return found.to_dict(), str(found)


def _report(trace: Trace, random: Random, _: Path) -> object:
    return trace.report(_other(random) if random.random() < 0.3 else None).html


def _diff(trace: Trace, random: Random, _: Path) -> object:
    sides = [trace, random.choice((trace, _other(random)))]
    random.shuffle(sides)
    found = diff(*sides, unit=random.choice(("ns", "cycles")), fail_over=["duration=+1%"])
    return found.to_dict(), str(found)


def _other(random: Random) -> Trace:
    return load(_written(random.randrange(len(files.subjects()))))


@cache
def _written(number: int) -> Path:
    path = _folder() / f"{number}.pftrace"
    path.write_bytes(files.subjects()[number].content)
    return path


def _convert(suffix: str) -> Consumer:
    def convert(trace: Trace, _random: Random, _: Path) -> object:
        path = _folder() / f"out{suffix}"
        trace.save(path, force=True)
        return load(path) if suffix == ".pftrace" else None

    return convert


def _edit(trace: Trace, random: Random, _: Path) -> object:
    changes: list[Callable[[], object]] = [
        lambda: edit.select(trace, sm=random.randrange(3)),
        lambda: edit.select(trace, launch=0, region="*o*"),
        lambda: edit.cut(trace, 0, random.choice((1, 10**6, 10**18))),
        lambda: edit.shift(trace, random.choice((-1, 10**9, 1 << 62))),
        lambda: edit.concat([trace, _other(random)]),
        lambda: edit.group_by(trace, random.choice(("region", "block"))),
        lambda: edit.rename_regions(trace, {trace.regions[0].name: "x"}),
        lambda: edit.merge_regions(trace, dict.fromkeys((r.name for r in trace.regions), "m")),
        lambda: edit.connect(trace, trace.regions[0].name, trace.regions[-1].name),
        lambda: edit.span(trace, "s", trace.regions[0].name, trace.regions[-1].name),
        lambda: list(trace.ranges()),
        trace.to_pandas,
    ]
    return random.choice(changes)()


def _view(_trace: Trace, random: Random, path: Path) -> object:
    first_look(path, random.choice((None, "0", "1", "gemm")))
    part = TracePart(random.choice((None, 0, 1)), (), random.choice(((), (0,))), (0, 1e5))
    (_folder() / "mutated-part.pftrace").unlink(missing_ok=True)
    return write_part(path, part, _folder())


def _salvage(_trace: Trace, _random: Random, path: Path) -> object:
    return PerfettoExporter().salvage(path)


CONSUMERS: dict[str, Consumer] = {
    "stats": _stats,
    "explain": _explain,
    "report": _report,
    "diff": _diff,
    **{suffix: _convert(suffix) for suffix in FORMATS},
    "edit": _edit,
    "view": _view,
    "salvage": _salvage,
}


def attempt(random: Random) -> str:
    """Give one mutated file to one consumer; return which it was, and what came of it.

    ``NAME``: the consumer took it. ``NAME refused``: it said why it can't. Where the reader refuses
    a few files, the last one is looked at in part: ``refused, view`` or ``refused, salvage``.

    Raises:
        Exception: a fault of the reader or of the consumer.
    """
    _take_up()
    name = random.choice(list(CONSUMERS))
    path = _folder() / "mutated.pftrace"
    with limited(), redirect_stderr(io.StringIO()):
        if (trace := _read(random, path)) is None:
            return f"refused, {_unread(random, path)}"
        try:
            CONSUMERS[name](trace, random, path)
        except IkpError:
            return f"{name} refused"
    return name


_TRIES = 4


def _read(random: Random, path: Path) -> Trace | None:
    """Return the trace of a mutated file; None where each of a few is refused."""
    for _ in range(_TRIES):
        path.write_bytes(_mutated(random))
        with suppress(IkpError):
            return load(path)
    return None


@cache
def _take_up() -> None:
    """Import what consumers import: Arrow alone sets aside a GiB of addresses."""
    sound = load(_written(0))
    for consumer in CONSUMERS.values():
        with suppress(IkpError):
            consumer(sound, Random(0), _written(0))
    sound.to_pandas()


def _unread(random: Random, path: Path) -> str:
    """Give a file that is not read to what looks at parts of it; return which it was."""
    name = random.choice(("view", "salvage"))
    try:
        CONSUMERS[name](ikp.Trace((), (), *_empty()), random, path)
    except IkpError:
        return f"{name} refused"
    return name


@cache
def _empty() -> tuple[object, object]:
    whole = load(_written(0))
    nothing = edit.select(whole, launch=[])
    return nothing.slots, nothing.events


def _mutated(random: Random) -> bytes:
    """Return a mutated file: mostly one that checksums and heads agree with."""
    subject = random.choice(files.subjects())
    make = random.choice((files.in_the_columns, *(files.in_agreement,) * 4))
    return make(subject, random)
