"""``Lines``: LLVM IR written line by line, with inline assembly for stores by one lane."""

from __future__ import annotations

from collections.abc import Sequence

SAVE = "s[ikp_save:ikp_save_high]"
NONE = "i32 0"
"""The vector offset of a store whose address is scalar."""


class Lines:
    """Instructions whose values are named after ``prefix``; each ends with ``place``."""

    def __init__(self, prefix: str, place: str = "") -> None:
        self.text: list[str] = []
        self._prefix, self._place = prefix, place

    def do(self, instruction: str) -> None:
        """Add an instruction without a result."""
        self.text.append(f"  {instruction}{self._place}")

    def let(self, name: str, instruction: str) -> str:
        """Add an instruction; return its value."""
        return self.let_as(f"%{self._prefix}.{name}", instruction)

    def let_as(self, value: str, instruction: str) -> str:
        """Add an instruction whose value has a given name."""
        self.do(f"{value} = {instruction}")
        return value

    def vector(self, *words: str) -> str:
        """Return four 32-bit words as one value."""
        value, name = "poison", f"v{len(self.text)}"
        for at, word in enumerate(words):
            code = f"insertelement <{len(words)} x i32> {value}, i32 {word}, i64 {at}"
            value = self.let(f"{name}.{at}", code)
        return value

    def halves(self, value: str) -> tuple[str, str]:
        """Return the low and the high word of a 64-bit value."""
        name = f"h{len(self.text)}"
        low = self.let(f"{name}.low", f"trunc i64 {value} to i32")
        shifted = self.let(f"{name}.up", f"lshr i64 {value}, 32")
        return low, self.let(f"{name}.high", f"trunc i64 {shifted} to i32")

    def assembly(self, code: Sequence[str], operands: Sequence[str], result: str = "") -> str:
        """Add assembly that LLVM neither drops, merges nor reorders.

        Args:
            code: lines; ``$0`` is the result where there is one, and the operands follow.
            operands: values with their types; each comes in vector registers.
            result: constraint of a 32-bit result.
        """
        constraints = ",".join(filter(None, [result, *"v" * len(operands), "~{scc}"]))
        text = "\\0A".join(code)
        call = f'asm sideeffect "{text}", "{constraints}"({", ".join(operands)})'
        if not result:
            self.do(f"call void {call}")
            return ""
        return self.let(f"a{len(self.text)}", f"call i32 {call}")


def masked(*stores: str) -> list[str]:
    """Return assembly that stores only in the active lanes whose bits are set in ``SAVE``.

    Two wait states have to pass before the words of a wide store may change.
    """
    return [
        f"s_and_saveexec_b64 {SAVE}, {SAVE}",
        *stores,
        f"s_mov_b64 exec, {SAVE}",
        *(["s_nop 0"] if len(stores) > 1 else []),
    ]
