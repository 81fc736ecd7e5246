"""Which warps record, where a session chooses some: how the host says it, and the code reads it.

A kernel that is to heed a choice of warps has more constants behind its cell, so one patched kernel
serves every choice; one that is not has neither these nor any of this code::

    | offset u32 | inverse u32 | shift u32 | blocks u32 | rows u32 | row of each warp u8 x 32 |

A chosen warp's slot is ``number of its block among the chosen x rows + its row``. Every n-th block
from the first is found without a division: ``block - first`` times the inverse of n's odd part,
rotated by what makes n even, is the block's number where n divides it, and more than any number
of a block where it doesn't, or where the block comes before the first.

Where blocks are chosen, and all warps of each, the others run the kernel's own code, which stands
once more in front of the one with records (``part``). All that such a block does beside is to find
out, so the choice is in the code: reading it would take longer. Where warps are chosen, all run the
code with records: those of one block may have to be at the same instruction (WGMMA).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ikp.core.segment import MAX_WARPS, Selection
from ikp.probes.code.reserved_registers import PLACES, Cell, Ground
from ikp.sass.assembly import forms
from ikp.sass.assembly.assembler import Step

SELECTION_BYTES: Final = 56
OFFSET, SHIFT, ROWS, ROW_OF_WARP = 0, 8, 16, 20
"""Where words stand, each pair of which is read at once."""
_NO_ROW = 0xFF
_LAST = (1 << 32) - 1
OTHERS: Final = 5
"""How many single registers ``part`` takes, at the most."""
NO_SLOT: Final = 0xFFFFFFFF
"""The number of a warp that does not record."""


def selection_words(chosen: Selection, warps: int) -> tuple[int, ...]:
    """Return what the host writes behind the cell, as words of 64 bits.

    Args:
        chosen: which warps and blocks record.
        warps: of a block.
    """
    offset, inverse, shift, blocks = _factors(chosen)
    rows = chosen.chosen_warps(warps).tolist()
    row_of_warp = [rows.index(n) if n in rows else _NO_ROW for n in range(MAX_WARPS)]
    words = (offset, inverse, shift, blocks, len(rows))
    told = b"".join(word.to_bytes(4, "little") for word in words) + bytes(row_of_warp)
    told = told.ljust(SELECTION_BYTES, b"\0")
    return tuple(int.from_bytes(told[at : at + 8], "little") for at in range(0, len(told), 8))


def _factors(chosen: Selection) -> tuple[int, int, int, int]:
    """Return what finds every n-th block: an offset, a factor, how far to rotate, how many."""
    first, step = chosen.first_block, chosen.block_step
    shift = (step & -step).bit_length() - 1
    inverse = pow(step >> shift, -1, 1 << 32)
    blocks = min(chosen.block_count, (_LAST - first) // step + 1)
    return -first * inverse & _LAST, inverse, shift, blocks


def linear_of(ground: Ground) -> int:
    """Return the register in which a warp's number among all is, beside that among the chosen."""
    return ground.quads[-1] + 1


def read_block(axes: Sequence[int], sizes: Sequence[int]) -> list[Step]:
    """Return what reads where in its grid a block is, and how many there are in x and y."""
    places = [forms.special(into, forms.CTAID_X + n) for n, into in enumerate(axes)]
    return [*places, *[forms.load_constant(e, 0, PLACES.grid + 4 * n) for n, e in enumerate(sizes)]]


def number_block(axes: Sequence[int], sizes: Sequence[int]) -> list[Step]:
    """Make of these the block's number, in the register of x."""
    (x, y, z), (columns, rows) = axes, sizes
    return [forms.multiply(y, z, rows, y), forms.multiply(x, y, columns, x)]


def part(chosen: Selection, quad: int, others: Sequence[int], ok: int, *, flat: bool) -> list[Step]:
    """Return what tells whose block records: they take the branch, which is the last step.

    Their block's number among those that record is in the first register then.

    Args:
        chosen: which blocks do.
        quad: four free registers in a row.
        others: one more, or five where the grid has several dimensions.
        ok: a free predicate.
        flat: whether it has only one.
    """
    f, grid = forms, (others[:3], others[3:5])
    offset, inverse, shift, blocks = _factors(chosen)
    number, factor, turn, most = range(quad, quad + 4)
    return [
        *([f.special(others[0], f.CTAID_X)] if flat else read_block(*grid)),
        *[f.immediate(number, offset), f.immediate(factor, inverse), f.immediate(most, blocks)],
        *([] if flat else number_block(*grid)),
        f.multiply(number, others[0], factor, number),
        *([f.immediate(turn, shift), f.rotate_right(number, number, turn)] if shift else []),
        f.below_other(ok, number, most),
        f.branch().when(ok),
    ]


def selected(
    ground: Ground, begin: Cell, warp: int, place: tuple[int, int], free: tuple[int, int]
) -> list[Step]:
    """Return what makes a warp's number among those that record, or ``NO_SLOT``.

    Args:
        ground: what is free there.
        begin: where the words stand.
        warp: the register with its number in its block, and then with what is found.
        place: those with the warps of a block, and with the block's number.
        free: two more.
    """
    f, ok, quad = forms, ground.predicate, ground.quads[-1]
    (warps, block), (row, rows) = place, free
    number, inverse, shift, blocks = range(quad, quad + 4)
    return [
        f.load_constant(number, *begin.beyond(OFFSET), pair=True),
        f.load_constant(shift, *begin.beyond(SHIFT), pair=True),
        f.load_constant(rows, *begin.beyond(ROWS)),
        f.load_byte(row, *begin.beyond(ROW_OF_WARP), warp),
        f.multiply(number, block, inverse, number),
        f.rotate_right(number, number, shift),
        f.below_constant(ok, row, MAX_WARPS),
        f.below_other(ok, number, blocks, where=ok),
        f.multiply(linear_of(ground), block, warps, warp),
        f.multiply(warp, number, rows, row),
        f.choose(warp, warp, NO_SLOT, ok),
    ]
