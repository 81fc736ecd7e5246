"""What stands before an EXIT where too few registers are free side by side.

That is so where the last stores may still read nearly all: nothing tells when they have. The header
is stored as always, word by word, and takes six registers still, but only two in a row.
"""

from __future__ import annotations

from collections.abc import Sequence

from ikp.core import abi
from ikp.machine import forms, near
from ikp.machine.assembler import Step
from ikp.machine.forms import RZ
from ikp.machine.keeping import Frame
from ikp.machine.ordering import reordered

_HEADER = abi.field_offsets(abi.DENSE_HEADER)


def leave_by_words(frame: Frame, words: Sequence[int], address: int, predicate: int) -> list[Step]:
    """Return what stands before an EXIT: one thread stores the slot's header.

    Args:
        frame: what the kernel keeps.
        words: four free registers.
        address: two others, the first even: the clocks are read into these.
        predicate: a free one.
    """
    f, low, high = forms, address, address + 1
    kept, first = [frame.count], _HEADER["attempted"]
    if frame.entered:
        kept, first = [*frame.entered[:2], frame.count, *frame.entered[2:]], 0
    times = [
        *[f.wide(low, f.GLOBAL_TIMER), f.copy(words[0], low), f.copy(words[1], high)],
        *[f.wide(low, f.CLOCK), f.copy(words[2], low), f.copy(words[3], high)],
    ]
    steps = [
        f.elect(predicate),
        f.below(predicate, RZ, frame.room, where=predicate),
        *([] if frame.near else [f.from_uniform(low, frame.header)]),
        *([] if frame.near else [f.from_uniform(high, frame.high)]),
        *_stored(frame, address, _HEADER["finish_ns"], words, predicate),
        *[f.from_uniform(into, each) for into, each in zip(words, kept, strict=False)],
        *_stored(frame, address, first, words[: len(kept)], predicate),
    ]
    return [*times, *reordered(steps)]


def _stored(
    frame: Frame, address: int, offset: int, words: Sequence[int], predicate: int
) -> list[Step]:
    def put(beyond: int, value: int) -> Step:
        if frame.near:
            return near.put_header(frame, RZ, beyond, value, 1)
        return forms.store(address, beyond, value, 1, frame.descriptor)

    return [put(offset + 4 * n, each).when(predicate) for n, each in enumerate(words)]
