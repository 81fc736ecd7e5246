"""The plan of an instrumentation: detail, lines, functions, level, sample; parsed and checked."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import PurePath
from typing import Final

from ikp.errors import UsageError

_DETAILS = ("kernel", "loops", "waits", "ops")
"""Details in order: each includes the marks of those before it."""
_LEVELS = ("source", "machine", "ptx")
BEST = "best"
"""The level where none is given: "machine", or else "ptx", for kernels compiled for an NVIDIA GPU;
"source" for kernels that are interpreted, or compiled for GPUs that are not NVIDIA's."""
BY_HAND = "ttgir"
"""The level of records that are placed by hand, in the compiler's IR."""
_AFTERWARDS = ("machine", "ptx", BEST)
"""Levels at which the kernel is compiled as it is, and probes go into its machine code or PTX."""

_MOST_SAMPLE = 1 << 20

NEEDED: Final = "needed"
"""Address probes of those kernels alone whose code does not say all trips and addresses."""
NOT_NAMED = "not among the chosen kernels"
"""Why a launch under ``ikp run`` is not recorded, where ``--kernel`` names others."""

_SPAN = re.compile(r"(?P<first>\d*)(?P<colon>:)?(?P<stop>\d*)")
_LINES = re.compile(r"(?:(?P<file>.*[^:\d]):)?(?P<first>\d+)(?:-(?P<last>\d+))?")


@dataclass(frozen=True, slots=True)
class _Lines:
    """Lines ``first`` to ``last`` of the files whose path ends in ``file`` ("" for any)."""

    file: str
    first: int
    last: int

    def __str__(self) -> str:
        span = f"{self.first}" if self.first == self.last else f"{self.first}-{self.last}"
        return f"{self.file}:{span}" if self.file else span

    def hold(self, path: str, first: int, last: int) -> bool:
        """Return whether lines ``first`` to ``last`` of the file ``path`` all belong to these."""
        return self.within(path) and self.first <= first and last <= self.last

    def within(self, path: str) -> bool:
        """Return whether these are lines of the file ``path``."""
        parts = PurePath(self.file).parts
        return PurePath(path).parts[-len(parts) :] == parts if parts else True

    @classmethod
    def parse(cls, text: str) -> _Lines:
        """Return the lines that ``text`` names: ``"88"``, ``"88-96"`` or ``"file.py:88-96"``.

        Raises:
            UsageError: it names none.
        """
        found = _LINES.fullmatch(str(text).strip())
        if found is not None:
            first = int(found["first"])
            lines = cls(found["file"] or "", first, int(found["last"] or first))
            if 0 < lines.first <= lines.last:
                return lines
        raise UsageError(
            f"lines={text!r} names no lines: write 88, 88-96 or file.py:88-96, the smaller number "
            "first."
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """The marks of a kernel: which code gets ranges, and at which level."""

    detail: str = "loops"
    lines: tuple[_Lines, ...] = ()
    level: str = "source"
    ttgir: str = ""  # the file with the records, where they are placed by hand
    functions: tuple[str, ...] = ()  # whose code gets ranges, as lines do
    ranges: bool = False  # whether ranges that the source names are marked
    max_overhead: float | None = None  # the most time, as a ratio to the plain kernel's: 1.05
    check: bool = False  # compare results with the plain kernel's
    probe: str = ""  # "addresses" of a sample of warps, too, once for each kernel; or ``NEEDED``
    tries: int = 0  # how many suspects are taken out of copies, to time these
    sample: int | None = 1  # of a launch with many blocks, one in how many records; None: by these

    def __str__(self) -> str:
        if self.ttgir:
            return f"ttgir={self.ttgir}"
        lines = f" lines={','.join(map(str, self.lines))}" if self.lines else ""
        functions = f" functions={','.join(self.functions)}" if self.functions else ""
        named = " ranges" if self.ranges else ""
        budget = "" if self.max_overhead is None else f" max_overhead={self.max_overhead:g}"
        check = " check" if self.check else ""
        probe = f" probe={self.probe}" if self.probe == "addresses" else ""
        tries = f" tries={self.tries}" if self.tries else ""
        rest = f"{lines}{functions}{named}{budget}{check}{probe}{tries}"
        return f"level={self.level} detail={self.detail}{rest}"

    @property
    def afterwards(self) -> bool:
        """Whether the kernel is compiled as it is, and probes go into its machine code or PTX."""
        return self.level in _AFTERWARDS

    @property
    def needs_machine_code(self) -> bool:
        """Whether an option needs machine code: functions, ranges, check, waits, others."""
        asked = self.functions or self.ranges or self.check or self.max_overhead
        apart = self.probe == "addresses" or self.tries
        return bool(self.detail == "waits" or asked or apart)

    @property
    def lost_in_ptx(self) -> str:
        """The options that marks in PTX do not have, in words; "" for none."""
        asked = (
            ("chosen lines", self.lines),
            ("chosen functions", self.functions),
            ("ranges that the source names", self.ranges),
            ("max_overhead", self.max_overhead),
        )
        return ", ".join(text for text, wanted in asked if wanted)

    @property
    def loops(self) -> bool:
        """Whether loops and their iterations are marked."""
        return self.detail != "kernel"

    @property
    def ops(self) -> bool:
        """Whether single operations are marked."""
        return self.detail == "ops"


@lru_cache(64)
def at_level(plan: Plan, level: str) -> Plan:
    """Return a plan with another level; each launch asks."""
    return replace(plan, level=level)


def _several(given: str | Iterable[str] | None) -> list[str]:
    """Return one or several texts as a list; a line may be given as its number."""
    return [given] if isinstance(given, (str, int)) else list(given or ())


def plan(
    detail: str | None = None,
    lines: str | Iterable[str] | None = None,
    level: str | None = "source",
    functions: str | Iterable[str] | None = None,
    max_overhead: float | None = None,
    *,
    ranges: bool = False,
    check: bool = False,
    probe: str | None = None,
    tries: int | None = None,
    sample: int | None = None,
    buffer: Collection[str] = (),
) -> Plan:
    """Return a plan, with its options checked.

    Args:
        detail: "kernel", "loops", "waits" (with level="machine" or "ptx") or "ops"; None is
            "loops", or "kernel" where lines, functions or ranges are chosen.
        lines: such as "88", "88-96" or "file.py:88-96", one or several.
        level: "source", "machine" or "ptx"; None is the best one for each kernel.
        functions: names of functions, with level="machine".
        max_overhead: such as 1.05, with level="machine".
        ranges: also mark the ranges that the kernel's source names, with level="machine".
        check: compare results with the plain kernel's, with level="machine" or "ptx".
        probe: "addresses": also record the lanes' addresses, with level="machine" or "ptx";
            ``NEEDED``: those of kernels whose code leaves trips or addresses open.
        tries: how many suspects are taken out of copies that are timed, with the same levels.
        sample: one block in how many records, where machine code is marked; 1 for all. None: 7 to
            31, by how many the launch has.
        buffer: names of given buffer options: "blocks" and "warps" exclude a sample.

    Raises:
        UsageError: an option is unknown, or two don't go together.
    """
    texts, names = _several(lines), _several(functions)
    detail = detail or ("kernel" if texts or names or ranges else "loops")
    level = level or BEST
    _check_names(detail, level)
    made = Plan(
        *(detail, tuple(map(_Lines.parse, texts)), level),
        functions=tuple(names),
        ranges=ranges,
        max_overhead=max_overhead,
        check=check,
        probe=probe or "",
        tries=tries or 0,
        sample=sample if sample is None else _checked_sample(sample, level, buffer),
    )
    _check_level(made)
    return made


def _check_names(detail: str, level: str) -> None:
    if level == "scheduled":
        raise UsageError(
            "level='scheduled' is no level any more: level='machine' marks the finished machine "
            "code, where it changes nothing else, and level='ptx' the PTX that it is made of."
        )
    levels = (*_LEVELS, BEST)
    for name, value, allowed in (("detail", detail, _DETAILS), ("level", level, levels)):
        if value not in allowed:
            raise UsageError(f"{name}={value!r} is unknown: use one of {', '.join(allowed)}.")


def _check_level(made: Plan) -> None:
    """Refuse options that the plan's level does not have."""
    level = made.level
    _check_functions(made.functions, level)
    if made.max_overhead is not None:
        _check_budget(made.max_overhead, level)
    for asked, levels, why in (
        (
            made.detail == "waits",
            _AFTERWARDS,
            (
                "detail='waits' shows what the machine code waits for: use it with "
                f"level='machine', not level={level!r}."
            ),
        ),
        (
            made.ranges,
            ("machine", BEST),
            (
                "ranges that the source names are placed with level='machine', not "
                f"level={level!r}: there, their code is known. Pass a buffer to the kernel, and it "
                "records them itself."
            ),
        ),
        (
            made.check,
            _AFTERWARDS,
            (
                f"check needs level='machine', not level={level!r}: there, the kernel that is "
                "compared is the one that runs without ikp."
            ),
        ),
        (
            made.probe == "addresses" or made.tries,
            _AFTERWARDS,
            (
                f"{'probe' if made.probe else 'tries'} needs level='machine', not level={level!r}: "
                "there, it is about the kernel that runs without ikp."
            ),
        ),
        (
            made.lines,
            ("source", "machine", BEST),
            (
                "lines are chosen in the source or in the machine code, not with level='ptx': "
                "leave the level out, or use detail='ops' and find each operation by its line."
            ),
        ),
    ):
        if asked and level not in levels:
            raise UsageError(why)


def _checked_sample(sample: int, level: str, buffer: Collection[str]) -> int:
    given: object = sample  # its annotated type is not trusted
    whole = isinstance(given, int) and not isinstance(given, bool)
    if not (whole and 1 <= sample <= _MOST_SAMPLE):
        raise UsageError(
            f"sample={sample!r} can't be used: write 7 for one block in seven, 1 for all of them, "
            f"{_MOST_SAMPLE:,} at the most."
        )
    if sample > 1 and level not in ("machine", BEST):
        raise UsageError(
            f"sample={sample} needs level='machine', not level={level!r}: there, blocks that don't "
            "record run the kernel's own code. Leave it out, and all record."
        )
    if chosen := [name for name in ("blocks", "warps") if sample > 1 and name in buffer]:
        raise UsageError(
            f"sample={sample} and chosen {' and '.join(chosen)} don't go together: a sample is of "
            "all blocks. Leave one of them out."
        )
    return sample


def _check_functions(names: Sequence[str], level: str) -> None:
    if names and level not in ("machine", BEST):
        raise UsageError(
            f"functions are chosen with level='machine', not level={level!r}: there, detail='ops' "
            "marks each call of a helper."
        )
    if wrong := [name for name in names if not name.isidentifier()]:
        raise UsageError(
            f"functions={wrong[0]!r} is no name of a function: write it alone, as def does."
        )


def _check_budget(most: float, level: str) -> None:
    if level not in ("machine", BEST):
        raise UsageError(
            f"max_overhead needs level='machine', not level={level!r}: there, marks cost what the "
            "compiler makes of them, which is not known before."
        )
    if not most > 1:
        raise UsageError(
            f"max_overhead={most:g} is no ratio above 1: write 1.05 for at most 5 % more time."
        )


ALL: Final = range(1 << 62)
"""All launches of a kernel."""


def has_no_end(launches: Sequence[int]) -> bool:
    """Return whether launches go on to the last one that a kernel will have."""
    return isinstance(launches, range) and launches.step == 1 and launches.stop == ALL.stop


def span(text: str | None) -> range:
    """Return the launches that ``text`` names: ``"3"``, ``"3:5"`` (3 and 4), ``":8"``, ``":"``.

    Raises:
        UsageError: it names none.
    """
    if text is None or text.strip() == ":":
        return ALL
    found = _SPAN.fullmatch(text.strip())
    if found is not None and (found["first"] or found["colon"]):
        first = int(found["first"] or 0)
        stop = first + 1 if not found["colon"] else int(found["stop"] or ALL.stop)
        if first < stop:
            return range(first, stop)
    raise UsageError(
        f"launches={text!r} names no launches. Launches of a kernel count from 0: write 3 for one, "
        "3:5 for 3 and 4, :8 for the first eight."
    )
