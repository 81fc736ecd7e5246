"""What may not be changed in original code, each in code of a few words."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ikp.sass.cubins.instruction import BYTES, WIDE, branch, rows
from ikp.sass.disassembly.listing import parse
from ikp.verifier.declared import Declared
from ikp.verifier.inserted_code import decode
from ikp.verifier.matched_code import MatchedCode, PatchedGraph
from tests.sass.texts import HEAD
from tests.verifier.cases import case

pytestmark = pytest.mark.any_pins

NOP = 0x000FC000000000000000000000007918
EXIT = 0x000FC0000000000000000000 << 32 | 0x794D
OURS = NOP | 1 << 105
"""An instruction that is none of the kernel's."""
CALL, WARPSYNC, MOVE = 0x7944, 0x7948 | 1 << 86, 0x7802
Line = tuple[str, int]
"""An instruction's text, and its 128 bits."""


def to(places: int, opcode: int = 0x7947) -> int:
    """Return an instruction that leads over so many places from its end."""
    return branch(WIDE, places * BYTES) & ~0xFFFF | opcode


def code(
    plain: Sequence[Line | str], patched: Sequence[int], ours: Sequence[int], *functions: int
) -> MatchedCode:
    """Return patched code, matched.

    Args:
        plain: the kernel's instructions, and labels between them.
        patched: the instructions of the patched code.
        ours: which of them are inserted.
        functions: the first instructions of functions beside the kernel.
    """
    text, old = HEAD, list[int]()
    for line in plain:
        if isinstance(line, str):
            text += f"{line}\n"
            continue
        low, high = line[1] & (1 << 64) - 1, line[1] >> 64
        text += f"        /*{BYTES * len(old):04x}*/   {line[0]} ;   /* 0x{low:016x} */\n"
        text += f"                    /* 0x{high:016x} */\n"
        old.append(line[1])
    (listed,) = parse(text)
    spans = tuple((BYTES * at, BYTES * (at + 1)) for at in ours)
    declared = Declared("k", 32, spans, None, 3, 0, 16)
    words = (rows(old), rows([*patched]))
    return MatchedCode(listed, *words, 90, set(), {0, *functions}, declared)


def wrong(*given: object) -> list[str]:
    return [*code(*given).check()]  # type: ignore[arg-type]


STRAIGHT: list[Line | str] = [("NOP", NOP), ("NOP", NOP), ("EXIT", EXIT)]


def test_inserted_code_lets_control_go_on_where_it_would() -> None:
    """A branch of its own may lead over inserted code alone."""
    assert wrong(STRAIGHT, [OURS, NOP, NOP, EXIT], [0]) == []
    assert wrong(STRAIGHT, [NOP, to(1), OURS, NOP, EXIT], [1, 2]) == []


def test_an_entry_that_leads_elsewhere_is_found() -> None:
    (found,) = wrong(STRAIGHT, [to(1), NOP, NOP, EXIT], [0])
    assert found == "its entry does not lead to its first instruction"


@pytest.mark.parametrize("places", [1, -2, 5])
def test_an_instruction_that_another_one_follows_is_found(places: int) -> None:
    (found,) = wrong(STRAIGHT, [NOP, to(places), NOP, EXIT], [1])
    assert found == "instruction 0, 'NOP', is not followed by the next one"


JUMPS: list[Line | str] = [
    ("BRA `(.L_x_1)", to(1)),
    ("NOP", NOP),
    ".L_x_1:",
    ("EXIT", EXIT),
]


def test_a_jump_leads_to_the_same_instruction_or_to_inserted_code_before_it() -> None:
    assert wrong(JUMPS, [to(2), NOP, OURS, EXIT], [2]) == []
    assert wrong(JUMPS, [to(1), NOP, OURS, EXIT], [2]) == []
    (found,) = wrong(JUMPS, [to(0), NOP, OURS, EXIT], [2])
    assert found.endswith("leads elsewhere")


def test_a_jump_whose_text_says_another_place_is_found() -> None:
    """Its bits and its text are held against each other: a field that is read wrong moves wrong."""
    lies = [("BRA `(.L_x_1)", to(0)), *JUMPS[1:]]
    (found,) = wrong(lies, [to(0), NOP, EXIT], [])
    assert found.endswith("does not hold the place where its text reads it")


def test_an_instruction_of_no_known_field_that_names_a_place_is_found() -> None:
    names: list[Line | str] = [("FOO `(.L_x_1)", NOP), *JUMPS[1:]]
    (found,) = wrong(names, [NOP, NOP, EXIT], [])
    assert found.endswith("names a place in a way that is not known")


def test_what_threads_run_together_holds_no_inserted_code() -> None:
    """A WARPSYNC that collects threads leads behind the one instruction that they run."""
    collects: list[Line | str] = [
        ("WARPSYNC.COLLECTIVE.ALL `(.L_x_1)", to(1, WARPSYNC & 0xFFFF) | 1 << 86),
        *JUMPS[1:],
    ]
    sync = [to(n, WARPSYNC & 0xFFFF) | 1 << 86 for n in range(3)]
    assert wrong(collects, [OURS, sync[1], NOP, EXIT], [0]) == []
    (found,) = wrong(collects, [sync[2], OURS, NOP, EXIT], [1])
    assert found.endswith("has inserted code in what threads run together")


def test_a_call_has_the_address_to_return_to_and_a_jump_by_a_call_has_none() -> None:
    def calls(address: int, call: int) -> list[Line | str]:
        moves = MOVE | address << 32 | NOP & ~0xFFFF
        return [("MOV R2, 0x20", moves), ("CALL.REL.NOINC `(.L_x_1)", call), *JUMPS[1:]]

    call = to(1, CALL)
    moved = MOVE | 3 * BYTES << 32 | NOP & ~0xFFFF
    plain = calls(2 * BYTES, call)
    assert wrong(plain, [OURS, moved, call, NOP, EXIT], [0], 3) == []
    stale = MOVE | 2 * BYTES << 32 | NOP & ~0xFFFF
    (found,) = wrong(plain, [OURS, stale, call, NOP, EXIT], [0], 3)
    assert found.endswith("has no address to return to")
    assert wrong(calls(7, call), [OURS, MOVE | 7 << 32 | NOP & ~0xFFFF, call, NOP, EXIT], [0]) == []


def test_an_opcode_that_no_patch_inserts_is_refused() -> None:
    with pytest.raises(ValueError, match="opcode 0x94d is none that is inserted"):
        decode(EXIT, 90)


def test_threads_leave_surely_only_by_a_predicate_that_inserted_code_leaves_alone() -> None:
    """Before ``@P0 EXIT``, a branch by ``@!P0`` is taken by all who stay."""
    leaves = EXIT & ~0xF000 | 0x0000
    skips = to(1) & ~0xF000 | 0x8000
    plain: list[Line | str] = [("@P0 EXIT", leaves), ("NOP", NOP), ("EXIT", EXIT)]
    tests_p0 = 0x20C | 7 << 12 | 7 << 84 | 7 << 87
    for before, sure in (([], True), ([tests_p0], False)):
        words = [*before, skips, NOP, leaves, NOP, EXIT]
        made = code(plain, words, range(len(before) + 2))
        assert bool(PatchedGraph(made, {}, set()).stay) == sure


def test_sections_and_symbols_that_are_not_declared_are_found() -> None:
    one = case("divides")
    assert one.declared.bank and not one.faults
    assert any("it has more sections" in each for each in one.declaring(bank=0).faults)
    other = one.declaring(nbytes=one.declared.nbytes + 16)
    assert "its symbols are not what is declared" in other.faults
