"""PTX stores of the launch header, made from the table of its fields.

The code around them has the address in ``a``, and in ``first`` whether this thread writes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ikp.core import launch_fields
from ikp.core.launch_fields import Origin

Operand = str | int
"""A register's name, or a constant."""


def stores(given: Mapping[str, Operand], counts: str = "") -> str:
    """Return the stores, a line each.

    Args:
        given: operands by origin, and of constants by the field's name.
        counts: a register in which launches are counted by the lines made here; without one, the
            count is given, too.
    """
    known = {Origin.LAUNCHES, *given} if counts else {*given}
    written = launch_fields.written(known)
    return "\n".join(
        _counted(store[0].offset, counts)
        if counts and store[0].origin is Origin.LAUNCHES
        else _stored(store[0].offset, [launch_fields.value_of(each, given) for each in store])
        for store in launch_fields.stores(written, Origin.LAUNCHES if counts else None)
    )


def _stored(offset: int, operands: Sequence[Operand]) -> str:
    if len(operands) == 1:
        return f"@first st.global.b32 [a+{offset}], {operands[0]};"
    joined = ", ".join(map(str, operands))
    return f"@first st.global.v{len(operands)}.b32 [a+{offset}], {{{joined}}};"


def _counted(offset: int, register: str) -> str:
    return (
        f"@first ld.global.b32 {register}, [a+{offset}]; add.u32 {register}, {register}, 1;\n"
        f"@first st.global.b32 [a+{offset}], {register};"
    )
