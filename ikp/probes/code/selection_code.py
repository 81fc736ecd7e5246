"""The selection of warps that record: the constants that the host writes, and code that reads them.

A kernel that is to heed a choice of warps has more constants behind its cell, so one patched kernel
serves every choice; one that is not has neither these constants nor any of this code::

    | offset u32 | inverse u32 | shift u32 | blocks u32 | rows u32 | row of each warp u8 x 32 |

A chosen warp's slot is ``number of its block among the chosen x rows + its row``. Every n-th block
from the first is found without a division. ``block - first`` is multiplied by the inverse of n's
odd part, and rotated by n's trailing zero bits. The result is the block's number where n divides
``block - first``. It is more than any block's number where n does not, or where the block comes
before the first.

Where blocks are chosen, with all warps of each, the others run the plain kernel's code (``part``):
a copy of it lies in front of the code with probes. The test of its number is all that such a block
adds, so the choice is in the code: reading it would take longer. Where warps are chosen, all run
the code with probes: those of one block may have to be at the same instruction (WGMMA).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ikp.core.segment import MAX_WARPS, Selection
from ikp.probes.code.reserved_registers import PLACES, Cell, EntryRegisters
from ikp.sass.assembly import forms
from ikp.sass.assembly.assembler import Step

SELECTION_BYTES: Final = 56
OFFSET, SHIFT, ROWS, ROW_OF_WARP = 0, 8, 16, 20
"""The offsets of words, each pair of which is read at once."""
_NO_ROW = 0xFF
_LAST = (1 << 32) - 1
OTHERS: Final = 5
"""The most single registers that ``part`` takes."""
NO_SLOT: Final = 0xFFFFFFFF
"""The number of a warp that does not record."""


def selection_words(chosen: Selection, warps: int) -> tuple[int, ...]:
    """Return the constants that the host writes behind the cell, as words of 64 bits.

    Args:
        chosen: the warps and blocks that record.
        warps: how many a block has.
    """
    offset, inverse, shift, blocks = _factors(chosen)
    rows = chosen.chosen_warps(warps).tolist()
    row_of_warp = [rows.index(n) if n in rows else _NO_ROW for n in range(MAX_WARPS)]
    words = (offset, inverse, shift, blocks, len(rows))
    raw = b"".join(word.to_bytes(4, "little") for word in words) + bytes(row_of_warp)
    raw = raw.ljust(SELECTION_BYTES, b"\0")
    return tuple(int.from_bytes(raw[at : at + 8], "little") for at in range(0, len(raw), 8))


def _factors(chosen: Selection) -> tuple[int, int, int, int]:
    """Return the constants of the test for every n-th block: offset, inverse, shift, blocks."""
    first, step = chosen.first_block, chosen.block_step
    shift = (step & -step).bit_length() - 1
    inverse = pow(step >> shift, -1, 1 << 32)
    blocks = min(chosen.block_count, (_LAST - first) // step + 1)
    return -first * inverse & _LAST, inverse, shift, blocks


def linear_of(ground: EntryRegisters) -> int:
    """Return the register of a warp's number among all warps, beside that among the chosen ones."""
    return ground.quads[-1] + 1


def read_block(axes: Sequence[int], sizes: Sequence[int]) -> list[Step]:
    """Return the code that reads a block's indices in its grid, and the grid's size in x and y."""
    places = [forms.special(into, forms.CTAID_X + n) for n, into in enumerate(axes)]
    return [*places, *[forms.load_constant(e, 0, PLACES.grid + 4 * n) for n, e in enumerate(sizes)]]


def number_block(axes: Sequence[int], sizes: Sequence[int]) -> list[Step]:
    """Return the code that makes the block's number of these, in the register of x."""
    (x, y, z), (columns, rows) = axes, sizes
    return [forms.multiply(y, z, rows, y), forms.multiply(x, y, columns, x)]


def part(chosen: Selection, quad: int, others: Sequence[int], ok: int, *, flat: bool) -> list[Step]:
    """Return the code that branches, with its last step, where a warp's block records.

    The block's number among those that record is in the first register then.

    Args:
        chosen: the blocks that record.
        quad: four free registers in a row.
        others: one more register, or five where the grid has several dimensions.
        ok: a free predicate.
        flat: whether the grid has only one dimension.
    """
    f, grid = forms, (others[:3], others[3:5])
    offset, inverse, shift, blocks = _factors(chosen)
    number, factor, by, most = range(quad, quad + 4)
    return [
        *([f.special(others[0], f.CTAID_X)] if flat else read_block(*grid)),
        *[f.immediate(number, offset), f.immediate(factor, inverse), f.immediate(most, blocks)],
        *([] if flat else number_block(*grid)),
        f.multiply(number, others[0], factor, number),
        *([f.immediate(by, shift), f.rotate_right(number, number, by)] if shift else []),
        f.below_other(ok, number, most),
        f.branch().when(ok),
    ]


def selected(
    ground: EntryRegisters, begin: Cell, warp: int, place: tuple[int, int], free: tuple[int, int]
) -> list[Step]:
    """Return the code for a warp's number among those that record, or ``NO_SLOT``.

    Args:
        ground: the registers that are free there.
        begin: the constants with the selection's words.
        warp: the register with the warp's number in its block, and then with the result.
        place: the registers with the warps of a block, and with the block's number.
        free: two free registers.
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
