"""Totals in Triton kernels: interpreted, and compiled with no store on the way."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import ikp
from ikp.backends.triton._hooks import names_in_code
from ikp.core.abi import Kind
from ikp.core.regions import region_id
from ikp.core.segment import Spec
from ikp.targets import ptx_totals
from tests.backends.opcodes import CLOCKS, opcode
from tests.backends.sass import (
    CAPABILITIES,
    LOCAL_MEMORY,
    SYNCHRONISING,
    Code,
    compile_kernel,
    spec,
)
from tests.backends.triton.test_pipelined import blocks_per_sm
from tests.exporters.perfetto.examples import assert_same
from tests.kernels import choices, control, expected, gemm
from tests.kernels.straight import straight
from tests.products import one_by_one
from tests.trace_processor import check_trace

PAIR = 6
"""SASS instructions that a range may cost: clock reads and waits for them, a difference, sums."""
STORES = 16
MEMORY = ("STG", "ST", "STS", "STL", "LDL", "RED", "ATOMG", "ATOMS")
RECORDS = {
    "nested": expected.nested,
    "overlapping": expected.overlapping,
    "early_return": expected.early_return,
}


def totals() -> Spec:
    return replace(spec(), totals=True)


# ------------------------------------------------------------------------------ interpreted


def recorded(name: str, module: Any, grid: int, n: int, **options: Any) -> ikp.Trace:
    import torch

    with ikp.profile(**options) as prof:
        out = torch.zeros(grid, dtype=torch.int32)
        getattr(module, name)[(grid,)](out, n, prof.buffer(name, regions={5: "five"}))
    return prof.trace


def counts(trace: ikp.Trace) -> list[Counter[str]]:
    """Return how often each region occurred, by program."""
    found: list[Counter[str]] = [Counter() for _ in range(len(trace.slots))]
    rows = zip(trace.totals.slot.tolist(), trace.totals.region.tolist(), strict=True)
    for (slot, region), count in zip(rows, trace.totals.count.tolist(), strict=True):
        found[slot][trace.regions[region].name] += count
    return found


@pytest.mark.interp
@pytest.mark.parametrize("n", [0, 1, 5])
@pytest.mark.parametrize("name", RECORDS)
def test_programs_count_what_the_kernel_says(name: str, n: int) -> None:
    trace = recorded(name, control, 3, n, mode="totals")
    wanted = [Counter(str(what) for what, _ in RECORDS[name](pid, n)) for pid in range(3)]
    assert counts(trace) == wanted
    (launch,) = trace.launches
    assert (launch.mode, launch.dropped, launch.notes) == ("totals", 0, ())
    assert not len(trace.events)


@pytest.mark.interp
def test_conditions_choose_what_is_counted() -> None:
    trace = recorded("conditional", choices, 4, 7, mode="totals")
    wanted = [Counter(name for name, _ in choices.conditional_records(p, 7)) for p in range(4)]
    assert counts(trace) == wanted
    assert {trace.roles[role] for role in trace.slots.role} == {"worker"}


@pytest.mark.interp
def test_ticks_are_those_of_the_host_and_a_range_holds_its_parts(tmp_path: Path) -> None:
    path = tmp_path / "t.pftrace"
    trace = recorded("nested", control, 2, 6, mode="totals", path=path)
    for block in (0, 1):
        row = {each.region: each for each in trace.stats("block") if each.group == f"block {block}"}
        whole, steps = row["for"].total_ns, row["step"].total_ns
        assert whole is not None and steps is not None and 0 < steps < whole
        share = row["for"].share
        assert share is not None and 0 < share < 1
    assert_same(ikp.load(path), trace)
    check_trace(path, trace)


@pytest.mark.interp
def test_a_selection_of_blocks_has_their_totals_alone() -> None:
    import torch

    with ikp.profile(mode="totals") as prof:
        buffer = prof.buffer("k", blocks=range(1, 4, 2))
        control.nested[(5,)](torch.zeros(5, dtype=torch.int32), 3, buffer)
    assert prof.trace.slots.block.tolist() == [1, 3]
    assert counts(prof.trace)[0]["step"] == 3


@pytest.mark.interp
def test_a_full_slot_drops_and_a_capture_finds_the_room() -> None:
    import torch

    def work(prof: ikp.profile) -> None:
        control.nested[(1,)](torch.zeros(1, dtype=torch.int32), 3, prof.buffer("k"))

    with (
        pytest.warns(ikp.IkpWarning, match="totals dropped"),
        ikp.profile(mode="totals", buffer_size=256) as prof,
    ):
        work(prof)
    assert prof.trace.dropped == 4  # of 8: for, step, even, odd, while, static, inner, outer
    assert ikp.capture(work, mode="totals", buffer_size=256).dropped == 0
    assert ikp.capture(work, mode="totals").launches[0].segment_bytes == 8 << 20


@pytest.mark.interp
@pytest.mark.parametrize(
    ("name", "module", "message"),
    [("placed", choices, "gives an index, but the session keeps totals")],
)
def test_what_totals_can_not_do_is_refused(name: str, module: Any, message: str) -> None:
    with pytest.raises(Exception, match=message):
        recorded(name, module, 2, 3, mode="totals")


@pytest.mark.interp
def test_a_region_that_a_compiled_kernel_would_not_know_is_refused() -> None:
    import torch

    places = torch.zeros(2 * STORES * 128, dtype=torch.int32)
    nothing = pytest.warns(ikp.IkpWarning, match="no totals: 1 warp")
    with nothing, ikp.profile(mode="totals") as prof:
        buffer = prof.buffer("k")
        with pytest.raises(Exception, match="known only at run time, but the session keeps totals"):
            straight[(1,)](places, 3, buffer, STORES=1, RECORDS=1, KIND="run-time id")


# --------------------------------------------------------------------------------- compiled


@cache
def code(records: int, kind: str, capability: int = 90, *, summed: bool = True) -> Code:
    constants = {"STORES": STORES, "RECORDS": records, "KIND": kind}
    prof = totals() if summed else spec()
    return compile_kernel(straight, {"x": "*i32", "p": "i32"}, prof, constants, capability)


@cache
def multiply(capability: int, kind: str) -> Code:
    prof = {"off": None, "timeline": spec(), "totals": totals()}[kind]
    constants = {"LOAD": True, "DOT": True, **gemm.TILES}
    return compile_kernel(
        gemm.gemm, gemm.TYPES, prof, constants, capability, divisible=True, **gemm.OPTIONS
    )


@pytest.mark.compiled
@pytest.mark.parametrize(
    ("kind", "capability"), one_by_one(["range", "payload", "functional", "end"], CAPABILITIES)
)
def test_a_range_costs_six_instructions_and_no_store(kind: str, capability: int) -> None:
    one, all_ = (code(n, kind, capability) for n in (1, STORES))
    assert 0 < all_.size - one.size <= PAIR * (STORES - 1)
    assert all_.count(MEMORY) == one.count(MEMORY)
    assert not all_.count(LOCAL_MEMORY)
    reads = [each.clock_reads for each in (one, all_)]
    assert reads[1] - reads[0] == (STORES - 1) * (1 if kind == "end" else 2)


@pytest.mark.compiled
@pytest.mark.parametrize("capability", CAPABILITIES)
def test_an_instant_is_counted_when_the_code_is_assembled(capability: int) -> None:
    one, all_ = (code(n, "instant", capability) for n in (1, STORES))
    assert all_.size - one.size <= 1  # sixteen times: one sum
    assert all_.count(MEMORY) == one.count(MEMORY)


@pytest.mark.compiled
def test_a_kernel_with_totals_is_smaller_than_one_with_a_timeline() -> None:
    assert code(STORES, "range").size < code(STORES, "range", summed=False).size


@pytest.mark.compiled
@pytest.mark.parametrize("capability", [80, 90])
def test_a_pipelined_loop_stores_nothing_and_keeps_its_pipeline(capability: int) -> None:
    off, timeline, summed = (multiply(capability, kind) for kind in ("off", "timeline", "totals"))
    kept = ("HMMA", "HGMMA", "LDGSTS", "LDGDEPBAR", "LDSM", *SYNCHRONISING, *LOCAL_MEMORY)
    assert summed.count(kept) == off.count(kept)
    assert not summed.count(LOCAL_MEMORY)
    assert summed.shared == off.shared
    # ptxas takes a few registers more or fewer; what counts is how many blocks an SM holds.
    assert blocks_per_sm(summed.allocated) == blocks_per_sm(off.allocated)
    loop = _loop(summed)
    assert sum(bool(CLOCKS.search(i)) for i in loop) >= 3
    assert not [i for i in loop if opcode(i) in ("STG", "ST", "STS", "STL", "LDL")]
    assert [i for i in _loop(timeline) if opcode(i) == "STG"]
    # Two ranges are four reads, two differences and two sums; the counts are the loop's own. ptxas
    # takes some of the loop's arithmetic to the uniform registers along with them.
    more = sum(opcode(i) != "NOP" for i in loop) - sum(opcode(i) != "NOP" for i in _loop(off))
    assert more <= 2 * PAIR + 4


def _loop(code: Code) -> list[str]:
    """Return the instructions of the loop that multiplies: from its first MMA's target on."""
    lines = re.findall(r"/\*([0-9a-f]{4,5})\*/\s+(.*?)\s*;", code.sass)
    places = {int(address, 16): i for i, (address, _) in enumerate(lines)}
    for at, (_, instruction) in enumerate(lines):
        target = re.search(r"\bBRA(?:\.\S+)? (?:U?P\w+, )?0x([0-9a-f]+)", instruction)
        begin = places.get(int(target[1], 16), at) if target else at
        body = [each for _, each in lines[begin : at + 1]]
        if begin < at and any("HGMMA" in each or "HMMA" in each for each in body):
            return body
    raise AssertionError("no loop was found")


@pytest.mark.compiled
@pytest.mark.parametrize(("name", "capability"), one_by_one(RECORDS, CAPABILITIES))
def test_every_place_of_a_verb_compiles_and_keeps_its_name(name: str, capability: int) -> None:
    made = compile_kernel(
        getattr(control, name), {"out": "*i32", "n": "i32"}, totals(), capability=capability
    )
    wanted = {str(what) for what, _ in RECORDS[name](0, 3)}
    assert set(names_in_code(made.ptx).values()) == wanted
    assert {counter.region for counter in ptx_totals.used(made.ptx)} == {*map(region_id, wanted)}
    assert not made.count(LOCAL_MEMORY)
    plain = compile_kernel(
        getattr(control, name), {"out": "*i32", "n": "i32"}, capability=capability
    )
    assert made.count(SYNCHRONISING) == plain.count(SYNCHRONISING)


@pytest.mark.compiled
def test_instants_and_conditions_compile() -> None:
    made = compile_kernel(choices.conditional, {"out": "*i32", "n": "i32"}, totals())
    found = {(each.kind, each.region) for each in ptx_totals.used(made.ptx)}
    ranges = {(Kind.RANGE, region_id(name)) for name in ("third", "late", "flight", "always")}
    assert found == {*ranges, (Kind.INSTANT, region_id("even"))}


@pytest.mark.compiled
@pytest.mark.parametrize(
    ("kernel", "types", "constants", "message"),
    [
        (choices.placed, {"out": "*i32", "n": "i32"}, {}, "gives an index, but the session keeps"),
        (
            straight,
            {"x": "*i32", "p": "i32"},
            {"STORES": 1, "RECORDS": 1, "KIND": "run-time id"},
            "known only at run time, but the session keeps totals",
        ),
    ],
)
def test_what_registers_can_not_hold_is_refused(
    kernel: Any, types: dict[str, str], constants: dict[str, Any], message: str
) -> None:
    with pytest.raises(Exception, match=message):
        compile_kernel(kernel, types, totals(), constants)
