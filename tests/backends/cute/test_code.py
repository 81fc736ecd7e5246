"""What ikp adds to compiled CuTe kernels, and what it must not: no GPU needed."""

from __future__ import annotations

import re
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import pytest
from cutlass import Float32
from cutlass.cute.runtime import make_fake_compact_tensor

from ikp.backends.triton._hooks import names_in_code
from ikp.core.abi import MAX_USER_REGION, Kind, OverflowMode, PayloadType, tag
from ikp.core.regions import region_id
from ikp.targets import ptx, ptx_slot
from ikp.verbs import dsl as names
from tests.backends.cute import kernels, persistent
from tests.backends.cute.compiling import (
    DEFAULT,
    TARGETS,
    compile_cute,
    floats,
    number,
    prof,
)
from tests.backends.sass import LOCAL_MEMORY, SYNCHRONISING, Code, spec
from tests.kernels.stripped import stripped

pytestmark = pytest.mark.compiled

RANGE, RUN_TIME_ID = 10, 12
"""SASS instructions that a range, and one of a run-time id, may cost in straight-line code."""
CONTROL = {
    "outer", "flight", "loop", "nested", "helper", "then", "else", "while", "unrolled",
    "chosen warp",
}  # fmt: skip


@cache
def straight(records: int, kind: str, target: str = DEFAULT, ring: bool = False) -> Code:
    mode = OverflowMode.WRAP if ring else OverflowMode.STOP
    arguments = (floats(), number(), prof(spec(mode)), kind, records)
    return compile_cute(kernels.launch_straight, *arguments, target=target)


@cache
def launched(kernel: str, target: str = DEFAULT, on: bool = True) -> Code:
    arguments = (getattr(kernels, kernel), floats(), number(), prof() if on else None)
    return compile_cute(kernels.launch, *arguments, target=target)


@cache
def roles(plain: bool = False, on: bool = True, target: str = DEFAULT) -> Code:
    made = (kernels.PlainRoles if plain else kernels.Roles)(2)
    return compile_cute(made, floats(), number(), prof() if on else None, target=target)


def marks(code: Code) -> list[str]:
    return re.findall(re.escape(ptx.STORE_MARK) + r" (.*)", code.ptx)


@pytest.mark.parametrize(
    ("kind", "target", "ring", "budget"),
    [
        *(("range", target, False, RANGE) for target in TARGETS),
        ("range", DEFAULT, True, RANGE),
        ("payload", DEFAULT, False, RANGE),
        ("functional", DEFAULT, False, RANGE),
        ("instant", DEFAULT, False, RANGE),
        ("run-time id", DEFAULT, False, RUN_TIME_ID),
    ],
)
def test_a_record_costs_at_most_ten_instructions(
    kind: str, target: str, ring: bool, budget: int
) -> None:
    one, eight = (straight(n, kind, target, ring) for n in (1, 8))
    more = eight.size - one.size
    assert 0 < more <= 7 * budget
    reads = [code.clock_reads for code in (one, eight)]
    assert reads[1] - reads[0] == 7 * (1 if kind == "instant" else 2)
    assert len(marks(eight)) == 8


def test_a_run_time_id_is_never_that_of_a_name() -> None:
    text = straight(1, "run-time id").ptx
    assert re.findall(r"and\.b32\s+%r\d+, %r\d+, (\d+);", text) == [str(MAX_USER_REGION)]


@pytest.mark.parametrize("target", TARGETS)
def test_recording_synchronises_nothing_and_uses_no_local_memory(target: str) -> None:
    recorded, off = (launched("control", target, on) for on in (True, False))
    unwanted = SYNCHRONISING + LOCAL_MEMORY
    assert recorded.count(unwanted) == off.count(unwanted)
    assert not recorded.count(LOCAL_MEMORY)


@pytest.mark.parametrize(
    ("kernel", "target"), [*(("control", target) for target in TARGETS), ("sentinel", DEFAULT)]
)
def test_off_is_the_kernel_without_ikp(kernel: str, target: str) -> None:
    off = launched(kernel, target, False)
    assert off.words == launched(f"plain_{kernel}", target, False).words
    assert "ikp_" not in off.ptx


def test_a_token_of_nothing_is_carried_with_a_flag_that_its_end_asks() -> None:
    text = launched("sentinel").ptx
    assert len(marks(launched("sentinel"))) == 2
    assert text.count("setp.ne.u32 w, %r") == 2  # in the loop and behind it


def test_every_place_where_a_verb_may_stand_has_its_record() -> None:
    found = names_in_code(launched("control").ptx)
    assert set(found.values()) == CONTROL
    assert found == {region_id(name): name for name in CONTROL}
    assert found.items() <= names.known().items()
    # The compiler may unroll a loop: then a record stands more than once.
    assert "region named on the host" in marks(launched("control"))


def test_init_stands_once_and_before_every_record() -> None:
    text = launched("control").ptx
    assert text.count(ptx_slot.INIT_MARK) == text.count(ptx_slot.FINISH_MARK) == 1
    places = [
        text.index(mark) for mark in (ptx_slot.INIT_MARK, ptx.STORE_MARK, ptx_slot.FINISH_MARK)
    ]
    assert places == sorted(places)


@pytest.mark.parametrize("target", ["sm_90a", "sm_100a"])
def test_warp_specialised_roles_keep_their_register_counts(target: str) -> None:
    recorded, off, plain = (
        roles(on=True, target=target),
        roles(on=False, target=target),
        roles(plain=True, on=False, target=target),
    )
    assert off.words == plain.words
    assert recorded.opcodes["USETMAXREG"] == plain.opcodes["USETMAXREG"] == 2
    unwanted = SYNCHRONISING + LOCAL_MEMORY
    assert recorded.count(unwanted) == plain.count(unwanted)
    assert set(names_in_code(recorded.ptx).values()) == {
        "produce",
        "producer",
        "consume",
        "consumer",
        "step",
    }


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the scheduler moves out of the wheel
@pytest.mark.parametrize("target", ["sm_90a", "sm_100a"])
def test_a_persistent_kernel_of_clusters_is_left_alone(target: str, tmp_path: Path) -> None:
    shape = (prod(persistent.TILES), persistent.THREADS)
    out = make_fake_compact_tensor(Float32, shape, stride_order=(1, 0))
    recorded, off, plain = (
        compile_cute(module.Persistent(), out, *buffer, target=target)
        for module, buffer in (
            (persistent, (prof(),)),
            (persistent, (None,)),
            (stripped(persistent, tmp_path), ()),
        )
    )
    assert off.words == plain.words
    kept = ("USETMAXREG", "UCGABAR_ARV", "UCGABAR_WAIT", *SYNCHRONISING, *LOCAL_MEMORY)
    assert recorded.count(kept) == plain.count(kept)
    assert recorded.opcodes["USETMAXREG"] == 2
    assert recorded.opcodes["UCGABAR_WAIT"] == 1
    assert names_in_code(recorded.ptx) == {
        region_id(name): name for name in ("wait for cluster", "first role", "second role")
    }


def test_no_record_is_dropped_by_the_compiler() -> None:
    code = launched("control")
    only_init = straight(0, "range")
    stores, in_init = (
        [i for i in made.instructions if "STG.E.128" in i and i.startswith("@")]
        for made in (code, only_init)
    )
    assert len(stores) - len(in_init) == len(marks(code))


@cache
def stored_tags() -> dict[str, int]:
    """Return the tag of each record of the kernel of payloads, by its region's name."""
    text = launched("payloads").ptx
    found = {}
    for block in text.split(ptx.STORE_MARK + " ")[1:]:
        name = re.match(r'\d+ "(.*)"', block)
        word = re.search(r"v4\.b32 \[a\], \{(0x[0-9a-f]+),", block)
        assert name is not None and word is not None
        found[name[1]] = int(word[1], 16)
    return found


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Int32", PayloadType.I32),
        ("Uint32", PayloadType.U32),
        ("Float32", PayloadType.F32),
        ("Float16", PayloadType.F32),
        ("Boolean", PayloadType.I32),
        ("int", PayloadType.I32),
        ("large int", PayloadType.U32),
        ("float", PayloadType.F32),
        ("bool", PayloadType.I32),
        ("none", PayloadType.NONE),
    ],
)
def test_a_payload_keeps_its_type(name: str, expected: PayloadType) -> None:
    assert stored_tags()[name] == tag(Kind.INSTANT, expected, region_id(name))


def test_a_spec_is_part_of_what_is_compiled() -> None:
    arguments: list[Any] = [prof(spec(mode)) for mode in OverflowMode]
    keys = {argument.__cache_key__() for argument in arguments}
    assert len(keys) == len(OverflowMode)
    stop, ring = (straight(8, "range", DEFAULT, ring) for ring in (False, True))
    assert stop.words != ring.words
