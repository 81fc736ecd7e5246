"""``Options`` of ``ikp run``: as text for the program's process, checked, and made into the plan,
the session and the launcher.

Options that choose kernels, blocks and warps are parsed here.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from ikp import registry
from ikp.errors import UsageError
from ikp.patterns import dotted

if TYPE_CHECKING:
    from ikp.profiling.profile import profile
    from ikp.running._watched import Watched
    from ikp.unedited.plan import Plan


_MAX_BLOCKS = 1 << 31
"""More than any grid has."""


def kernels(text: str | None) -> re.Pattern[str] | None:
    """Return the pattern of ``--kernel``, or None for all kernels."""
    return dotted(text) if text else None


def of_launch(blocks_text: str | None, warps_text: str | None) -> dict[str, Any]:
    """Return the options of ``prof.buffer`` for ``--blocks`` and ``--warps``."""
    chosen: dict[str, Any] = {}
    if blocks_text is not None:
        chosen["blocks"] = blocks(blocks_text)
    if warps_text is not None:
        chosen["warps"] = warps(warps_text)
    if chosen:
        from ikp.core.segment import select  # imports numpy

        select(chosen.get("warps"), chosen.get("blocks"), "warp")
    return chosen


def blocks(text: str) -> range:
    """Return the blocks that ``"7"``, ``"0:64"`` or ``"::7"`` names."""
    if found := re.fullmatch(r"(\d*):(\d*)(?::(\d*))?", text, re.ASCII):
        first, stop, step = found.groups()
        end = min(int(stop or _MAX_BLOCKS), _MAX_BLOCKS)
        each = min(int(step or 1), _MAX_BLOCKS)
        chosen = range(int(first or 0), end, each) if each else range(0)
    elif re.fullmatch(r"\d+", text, re.ASCII):
        chosen = range(int(text), min(int(text) + 1, _MAX_BLOCKS))
    else:
        chosen = range(0)
    if chosen:
        return chosen
    raise UsageError(
        f"--blocks {text!r} names no blocks: write 7 for one, 0:64 for a range, ::7 for one in "
        "seven."
    )


def warps(text: str) -> list[int]:
    """Return the warps that ``"0"``, ``"0,4"`` or ``"0-3"`` names."""
    from ikp.core.segment import MAX_WARPS

    chosen: list[int] = []
    for part in text.split(","):
        found = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if found is None or not int(found[1]) <= int(found[2] or found[1]) < MAX_WARPS:
            raise UsageError(
                f"--warps {text!r} names no warps: write 0, 0,4 or 0-3. A block has at most "
                f"{MAX_WARPS}, counted from 0."
            )
        chosen += range(int(found[1]), int(found[2] or found[1]) + 1)
    return chosen


MIB: Final = 1 << 20
REPLAYS: Final = 8
"""How many replays of each CUDA graph are kept, where the user does not say."""
MOST_WARPS: Final = 1 << 25
"""Warps of all launches that a run's end decodes, where the user chooses no launches: the UI has no
room for more, and they take some 40 s."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of ``ikp run``, as the program's process gets them."""

    path: str
    force: bool
    detail: str | None
    lines: tuple[str, ...]
    functions: tuple[str, ...]
    ranges: bool
    max_overhead: float | None
    sample: int | None
    check_results: bool
    probe: str | None
    tries: int | None
    level: str | None
    mode: str
    kernel: str | None
    launch: str | None  # None: what ``IN_TURN`` says
    clock: str
    blocks: str | None
    warps: str | None
    buffer_mib: int | None
    memory_mib: int
    replays: int | None = None  # of each CUDA graph; None: what ``REPLAYS`` says
    follow: str = "none"  # which children are recorded, too
    idle: bool = False  # record in windows alone
    while_file: str | None = None  # which is open while this file is there
    template: str = ""  # the path as the user wrote it: each process has another one
    explain: bool = True  # end with what took the time
    merge: bool = True  # end with one file of all processes
    host: bool = False  # record what the host does, too
    host_seconds: float = 60.0
    overflow: str = "stop"  # or "stream", which no record in machine code has
    output: str = "text"  # or "json": the end of the run as a file, too
    folder: str = ""  # in which the command was typed

    def __str__(self) -> str:
        choice = asdict(self)
        path = choice.pop("path")
        return f"{json.dumps(choice)}\n{path}"

    @classmethod
    def parse(cls, text: str, path: str) -> Self:
        """Return the options from the two lines of ``str(options)``."""
        return cls(path=path, **json.loads(text))

    @property
    def is_idle(self) -> bool:
        """Whether the program is recorded in windows alone."""
        return self.idle or self.while_file is not None

    def check(self) -> None:
        """Check the options before the program begins.

        Raises:
            UsageError: an option names nothing, or two don't go together.
            ExportError: the trace can't be written.
        """
        self.plan()
        if self.host and not self.path.endswith((".pftrace", ".perfetto-trace")):
            raise UsageError(
                f"--host puts what the host did beside the trace in its file: give the path of a "
                f".pftrace, not {self.path}."
            )
        if self.host and self.is_idle:
            raise UsageError(
                "--host goes with no window (--idle, --while): torch.profiler waits for the whole "
                "GPU as it ends, and would break the capture of a CUDA graph. Leave --host out."
            )
        if self.overflow == "stream":
            raise UsageError(
                "--overflow stream reads records while a kernel runs. ikp run inserts records into "
                "machine code, where a warp writes how many it has made as it ends: before, the "
                "host could not know a record from half of one. For a kernel that runs long, give "
                "more room (--buffer), or fewer warps and blocks (--warps, --blocks). For one that "
                "never ends, mark it with verbs: ikp.profile(overflow='stream'), which ikp run "
                "leaves as it is."
            )
        self.launches()
        kernels(self.kernel)
        if self.mode != "timeline":  # a timeline goes with every clock
            self.session()
        self._check_path()

    def plan(self) -> Plan:
        """Return the plan of what to mark.

        Raises:
            UsageError: an option is unknown, or two don't go together.
        """
        from ikp.unedited.plan import plan

        return plan(
            *(self.detail, self.lines, self.level, self.functions, self.max_overhead),
            ranges=self.ranges,
            check=self.check_results,
            probe=self._probe(),
            tries=self.tries,
            sample=self.sample,
            buffer=of_launch(self.blocks, self.warps),
        )

    def _probe(self) -> str | None:
        """Return which kernels have address probes: in detail, those whose counts need them."""
        from ikp.unedited.plan import NEEDED

        if self.probe is None:
            return NEEDED if self.detail == "ops" and self.level != "source" else None
        return None if self.probe == "none" else self.probe

    def _check_path(self) -> None:
        """Check the path; in full, which imports numpy, where it may be unusable."""
        path = Path(self.path)
        default = self.force and path.suffix == ".pftrace"
        if not default or path.is_dir() or not os.access(path.parent, os.W_OK | os.X_OK):
            from ikp.registry import check_target

            check_target(path, self.force)

    def session(self, path: str = "", *, stands_by: bool = False) -> profile:
        """Return the session that records a process; or one that only gives buffers to captures."""
        from ikp.profiling.profile import profile

        size = self.buffer_mib * MIB if self.buffer_mib else None
        session = profile(
            path or self.path,
            force=self.force,
            clock=self.clock,
            mode=self.mode,
            buffer_size=size,
            replays=0 if stands_by else self.replays or REPLAYS,
        )
        session.prepared_later = True
        if self.launch is None and self.replays is None:
            session.most_warps = MOST_WARPS
        session.export = not stands_by
        return session

    def launches(self) -> Sequence[int]:
        """Return which launches of each kernel are recorded, counted from 0.

        Raises:
            UsageError: the text names none.
        """
        from ikp.core.turns import IN_TURN
        from ikp.unedited.plan import span

        return IN_TURN if self.launch is None else span(self.launch)

    def launcher(self) -> Watched:
        """Return the launcher of the program's kernels; it has no session yet."""
        (backend, *_) = (each for each in registry.own().values() if hasattr(each, "watch"))
        launcher: Watched = backend.watch(
            self.plan(),
            launches=self.launches(),
            buffer=of_launch(self.blocks, self.warps),
            kernels=kernels(self.kernel),
            room=self.memory_mib * MIB,
        )
        return launcher
