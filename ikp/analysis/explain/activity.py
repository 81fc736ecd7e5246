"""``Activity`` of a region, from its machine code, the kind of an automatic mark, or its name.

No name has to follow a convention. The machine code says it best (``core.code_facts``, kept in the
trace when it was recorded). An automatic mark's name begins with what is marked. A name that a user
gave is read word by word, last of all. The verdict says which of the three was used.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

from ikp.core.code_facts import RangeFacts


class Activity(Enum):
    """What a warp does in a range."""

    WAIT_BARRIER = "wait:barrier"
    WAIT_COPY = "wait:copy"
    WAIT_MMA = "wait:mma"
    WAIT_MEMORY = "wait:memory"
    COPY = "copy"  # issues copies that go on by themselves
    MMA = "mma"  # issues products, or makes them
    LOAD = "load"
    STORE = "store"
    COMPUTE = "compute"
    AROUND = "around"  # a kernel, a loop, an iteration: the ranges inside say more
    UNKNOWN = "unknown"

    @property
    def waits(self) -> bool:
        """Whether the warp waits."""
        return self.value.startswith("wait")

    @property
    def multiplies(self) -> bool:
        """Whether a product is under way."""
        return self in (Activity.MMA, Activity.WAIT_MMA)


_VALUES: Final = frozenset(one.value for one in Activity)


@dataclass(frozen=True, slots=True)
class Known:
    """The activity of a region, and how it is known."""

    activity: Activity
    by: str  # "machine code" | "mark" | "name" | "holds others" | ""


MEMORY: Final = (Activity.WAIT_MEMORY, Activity.LOAD, Activity.STORE)
"""Of warps that load, store, or wait for what they loaded."""
FLAG_WAIT: Final = "flag wait @"
"""How the names of waits begin that read memory until another block changes it. Their machine code
is that of a load."""
_MARK: Final = re.compile(r"^(?P<what>.+?)(?: x\d+)? @[^@:]+:\d")
"""An automatic mark's name: what is marked, and at which line of which file."""
_LINES: Final = re.compile(r".*: (?P<verb>wait|issue|barrier)(?P<rest>.*)")
"""The name of a range of chosen lines, which says what the lines do."""

_MARKS: Final = (
    (r"(wgmma|warp_group_dot|warpgroup_mma|tcgen05\w*)[ _.]?\w*wait\w*", Activity.WAIT_MMA),
    (r"(cp\.async|copy|TMA store|async_copy|tma\S*store|store) ?_?wait\w*", Activity.WAIT_COPY),
    (r"async_wait|wait for all|(\w+\.)*wait_group|(\S*\.)?store_wait", Activity.WAIT_COPY),
    (r"mbarrier[ ._]wait\S*|wait_barrier|barrier|(flag|tensor memory) wait", Activity.WAIT_BARRIER),
    (r"(\w+\.)*(debug_)?barrier|(\w+\.)*sync\w*|cluster\S*(wait|arrive)\S*", Activity.WAIT_BARRIER),
    (r"wait for .+", Activity.WAIT_MEMORY),
    (r"(for|while|loop|iteration)\b.*", Activity.AROUND),
    (r"wgmma|mma|tcgen05\.mma|(\w+\.)*(dot|dot_scaled)", Activity.MMA),
    (r"warp_group_dot|tc_gen5_mma\w*", Activity.MMA),
    (r"(\w+\.)*warpgroup_mma|(\w+\.)*tcgen05_mma\w*|(\w+\.)*mma_v2|gemm", Activity.MMA),
    (r"(TMA|async_tma_copy_local|(\w+\.)*async_\w*shared_to_global).*", Activity.STORE),
    (r"(\w+\.)*(store|descriptor_store|buffer_store|atomic\w*)|tcgen05\.st", Activity.STORE),
    (r"cp\.async|tcgen05\.cp|async_(tma_)?copy\w*|(\w+\.)*async_\w*(copy|load|gather)\w*",
     Activity.COPY),
    (r"(\w+\.)*(load|gather|descriptor_load|buffer_load)|tcgen05\.ld", Activity.LOAD),
)  # fmt: skip
_TMA_LOAD: Final = "TMA load"
_MARK_KINDS: Final = tuple((re.compile(pattern), activity) for pattern, activity in _MARKS)

_WAITS: Final = frozenset(["wait", "waits", "waiting", "acquire", "await", "stall"])
_BARRIERS: Final = frozenset(["barrier", "sync", "syncthreads", "bar", "arrive"])
_WORDS: Final = (
    (Activity.MMA, "mma dot wgmma gemm umma tcgen05 matmul hgmma tensor"),
    (Activity.STORE, "store stores st write writes epilogue atomic out"),
    (Activity.COPY, "copy copies tma cp fetch prefetch produce"),
    (Activity.LOAD, "load loads ld read reads gather"),
    (Activity.AROUND, "kernel loop iteration iter tile mainloop block work body prologue"),
    (Activity.COMPUTE, "compute math softmax exp norm scale reduce sum max relu act gelu hash"),
    (Activity.COMPUTE, "sort rescale convert quant dequant float alu spin"),
)
_BY_WORD: Final = {word: kind for kind, words in _WORDS for word in words.split()}
_BARRIERS_OF_RINGS: Final = {"full": Activity.WAIT_COPY, "empty": Activity.WAIT_BARRIER}
"""The usual names of the two barriers of a stage, which count where no other word is known."""
_WAITED: Final = (
    (Activity.WAIT_MMA, "mma dot wgmma gemm umma matmul tensor product"),
    (Activity.WAIT_MEMORY, "memory load ld gather"),
    (Activity.WAIT_COPY, "copy copies tma cp data async full"),
)


def of_region(name: str, facts: RangeFacts | None, kernels: frozenset[str]) -> Known:
    """Return the activity of a region.

    Args:
        name: the region's name.
        facts: what its ranges hold in the machine code, where the trace says it.
        kernels: names of kernels, whose own ranges are around all others.
    """
    if facts is not None and facts.activity in _VALUES and not name.startswith(FLAG_WAIT):
        return Known(Activity(facts.activity), "machine code")
    if (marked := _of_mark(name, kernels)) is not None:
        return Known(marked, "mark")
    named = _of_words(name)
    return Known(named or Activity.UNKNOWN, "name" if named else "")


def _of_mark(name: str, kernels: frozenset[str]) -> Activity | None:
    found = _MARK.match(name)
    what = found["what"] if found else name
    if what in kernels:
        return Activity.AROUND
    if not found:
        return None
    if what == _TMA_LOAD:
        return Activity.COPY
    for pattern, activity in _MARK_KINDS:
        if pattern.fullmatch(what):
            return activity
    return _of_lines(what)


def _of_lines(what: str) -> Activity | None:
    """Return the activity of a range of lines: ``"dot: issue to wait"``, ``"load: wait"``."""
    found = _LINES.fullmatch(what)
    if not found:
        return None
    head = what.split(":", maxsplit=1)[0]
    named = _of_words(head)
    if found["verb"] == "wait":
        waits = {Activity.MMA: Activity.WAIT_MMA, Activity.COPY: Activity.WAIT_COPY}
        return waits.get(named or Activity.LOAD, Activity.WAIT_MEMORY)
    return named


def _of_words(name: str) -> Activity | None:
    words = [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+\d*", name)]
    have = frozenset(words) | frozenset(re.findall("[a-z0-9]+", name.lower()))
    if have & _WAITS:
        kinds = (kind for kind, what in _WAITED if have & {*what.split()})
        return next(kinds, Activity.WAIT_BARRIER)
    if have & _BARRIERS:
        return Activity.WAIT_BARRIER
    named = (_BY_WORD[word] for word in words if word in _BY_WORD)
    rings = (kind for word, kind in _BARRIERS_OF_RINGS.items() if word in have)
    return next(named, next(rings, None))
