"""Records of one block that are stored at once, each by a thread of its own."""

from __future__ import annotations

import re
from functools import cache

import pytest

from ikp.core.trace import Trace
from ikp.inspection._find_records import find
from ikp.probes.made_patch import Patch
from ikp.probes.patch import patch
from ikp.probes.placement import record_batches
from ikp.probes.placement.instrumentation import Instrumenter
from ikp.probes.points.probe_points import ProbeRegions
from ikp.sass.assembly import forms as f
from ikp.sass.assembly import lane_forms
from ikp.sass.cubins.instruction import BYTES
from ikp.sass.dataflow.hazards import ScoreboardHazards
from ikp.sass.disassembly.effects import EVERYTHING
from ikp.sass.disassembly.listing import Instruction
from tests.probes.test_sharing import STORES, TURNS
from tests.sass.assembled import assembled, cubin
from tests.sass.compiled import code
from tests.sass.hazards import hazards
from tests.sass.readback import code_of
from tests.sass.whole import run

pytestmark = pytest.mark.any_pins

KEPT, READ = "what threads keep", "read each time"
SIX = STORES.replace(
    " .loc 1 10 0",
    "".join(
        f" .loc 1 {20 + n} 0\n add.u32 j, i, {n + 20};\n .loc 1 {30 + n} 0\n"
        f" st.volatile.global.u32 [a+{12 + 4 * n}], j;\n"
        for n in range(2)
    )
    + " .loc 1 10 0",
)
"""Six records in each turn of a loop, more than four bytes tell apart."""
NEEDED = STORES.replace(
    "L:\n",
    " .reg .pred Q<7>; .reg .u32 t; mov.u32 t, %tid.x; add.u32 t, t, rz;\n"
    + "".join(f" setp.gt.u32 Q{n}, t, {99 + n};\n" for n in range(7))
    + "L:\n",
    1,
).replace(
    " .loc 1 10 0",
    "".join(f" .loc 1 {20 + n} 0\n @Q{n} st.volatile.global.u32 [a+64], j;\n" for n in range(7))
    + " .loc 1 10 0",
)
"""A kernel that needs all predicates, and none of them holds."""
LEFT = STORES.replace("L:\n", " mov.u32 j, %tid.x; setp.lt.u32 P, j, rz; @P ret;\nL:\n", 1)
"""Some threads of a warp leave before the loop."""
LOADS = """.file 1 "k.py"
.visible .entry k(.param .u64 p, .param .u64 q) {
 .reg .b64 a, b; .reg .b32 x<16>, y<16>, t;
 .loc 1 1 0
 ld.param.u64 a, [p]; ld.param.u64 b, [q]; mov.u32 t, %tid.x;
 mad.wide.u32 a, t, 64, a; mad.wide.u32 b, t, 64, b;
"""
LOADS += "".join(f" .loc 1 {10 + n} 0\n ld.global.u32 x{n}, [a+{4 * n}];\n" for n in range(16))
LOADS += "".join(
    f" .loc 1 {50 + n} 0\n shl.b32 y{n}, x{n}, x{(n * 3 + 1) % 16};\n"
    f" st.global.u32 [b+{4 * n}], y{n};\n"
    for n in range(16)
)
LOADS += " ret; }\n"
"""Many loads are under way where records are stored."""


@cache
def plain(source: str) -> bytes:
    return cubin(source, "sm_90a")


@cache
def made(source: str, way: str) -> Patch:
    with pytest.MonkeyPatch.context() as patched:
        if way == READ:
            patched.setattr(record_batches, "_THREADS", 999)
        return patch(plain(source), "k", detail="ops")


def looped(made: Patch) -> list[Instruction]:
    """Return the instructions in loops."""
    flow = code_of(made.cubin, "k").flow
    blocks = {block for body in flow.bodies.values() for block in body}
    return [flow.code.instructions[at] for at in flow.instructions(frozenset(blocks))]


@pytest.mark.parametrize("way", [KEPT, READ])
@pytest.mark.parametrize(("source", "records"), [(STORES, 4), (SIX, 6)])
def test_one_store_takes_all_records_of_a_turn(source: str, records: int, way: str) -> None:
    code = looped(made(source, way))
    stores = [each for each in code if each.op == "STG" and each.guard]
    assert [each.opcode for each in stores] == ["STG.E.128"]
    assert sum(each.op == "PRMT" for each in code) == records - 1
    assert sum(each.op == "S2R" for each in code) == (way == READ)
    assert made(source, way).margin == 0
    ours = code_of(made(source, way).cubin, "k")
    assert hazards(ours) == hazards(code_of(plain(source), "k"))


@pytest.mark.parametrize("way", [KEPT, READ])
@pytest.mark.parametrize(("source", "stores"), [(STORES, 3), (SIX, 5), (NEEDED, 6)])
def test_each_thread_has_the_words_of_its_own_record(source: str, stores: int, way: str) -> None:
    """Ranges come one after another in each turn, and the next turn behind them."""
    (trace,) = traces(source, way)
    assert not trace.launches[0].notes
    assert results(made(source, way)) == results(patch(plain(source), "k", detail="kernel"))
    events = trace.events
    rows = list(zip(events.start_ns, events.end_ns, events.region, events.slot, strict=True))
    for slot in range(2):
        mine = sorted(row for row in rows if row[-1] == slot)
        named = [(start, end, trace.regions[region].name) for start, end, region, _ in mine]
        inner = [each for each in named if each[2].startswith("store")]
        assert [name for *_, name in inner] == [name for *_, name in inner[:stores]] * TURNS
        assert len({name for *_, name in inner}) == stores
        clocks = [clock for start, end, _ in inner for clock in (start, end)]
        assert clocks == sorted(clocks)
        turns = [each for each in named if each[2].startswith("iteration")]
        for (start, end, _), at in zip(turns, range(0, len(clocks), 2 * stores), strict=False):
            assert start <= clocks[at] < clocks[at + 2 * stores - 1] <= end


def results(made: Patch) -> bytes:
    """Return what the kernel itself leaves."""
    return run(made, "k", 2, (0, 0, 0, TURNS))[1]


def traces(source: str, way: str, records: int | None = None) -> list[Trace]:
    """Run two warps; return what they recorded, whatever was dropped."""
    found: list[Trace] = []
    run(made(source, way), "k", 2, (0, 0, 0, TURNS), records=records, dropped=[], traces=found)
    return found


@pytest.mark.parametrize("way", [KEPT, READ])
def test_a_full_slot_keeps_the_first_records_and_counts_the_rest(way: str) -> None:
    """However many fit, of those that one store takes, too: no warp writes into another's."""
    (whole,) = traces(SIX, way)
    every = len(whole.events) - 2  # each warp's own range is none that a slot keeps
    first = [whole.regions[each].name for each in whole.events.region[: every // 2]]
    for records in range(1, every // 2):
        (kept,) = traces(SIX, way, records)
        names = [kept.regions[each].name for each in kept.events.region]
        assert names[:records] == first[:records]
        assert len(kept.events) == 2 * records + 2
        assert kept.launches[0].dropped == every - 2 * records


@pytest.mark.parametrize("way", [KEPT, READ])
@pytest.mark.compiled
def test_a_wait_holds_nothing_of_ours(way: str) -> None:
    """What is done with its record stands behind both clocks."""
    kernel = code("gathered").compiled
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(record_batches, "_THREADS", 999 if way == READ else 3)
        patched.setattr(record_batches.Gatherer, "is_worth", lambda self, groups: True)
        made = patch(kernel.asm["cubin"], kernel.name, detail="ops", ptx=kernel.asm["ptx"])
    flow = code_of(made.cubin, kernel.name).flow
    found = find(flow)
    stores = [each.store for each in found.records]
    ours = {at // BYTES for first, end in made.ours for at in range(first, end, BYTES)}
    gathered = [each for each in found.records if stores.count(each.store) > 1]
    waits = [
        span
        for each in gathered
        for span in each.spans
        if flow.code.controls.waits[span.end] and span.end - span.start < 8
    ]
    assert waits
    for each in waits:
        assert not ours.intersection(range(each.start + 1, each.end))


def test_where_threads_may_have_left_records_are_stored_one_by_one() -> None:
    """What a thread keeps that is gone would be lost."""
    regions = ProbeRegions(code_of(plain(LEFT), "k").flow).regions
    (loop,) = regions.flow.bodies
    assert loop in regions.lacking and loop not in regions.divergent
    code = looped(made(LEFT, KEPT))
    assert not any(each.op == "PRMT" for each in code)
    assert any(each.op == "ELECT" for each in code)


def test_no_store_reads_what_a_load_has_yet_to_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store takes four registers, though a record has three words: the verifier looks at all."""
    patch(plain(LOADS), "k", detail="ops", block=(128, 1, 1))
    monkeypatch.setattr(ScoreboardHazards, "late", lambda *_: EVERYTHING)
    stores = [each for each in looped(patch(plain(SIX), "k", detail="ops")) if each.op == "STG"]
    assert any(each.guard for each in stores)
    assert not any(each.opcode == "STG.E.128" for each in stores)


def test_where_few_stores_would_be_fewer_all_stay_as_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Gathered records take the rows in which those of several warps lie side by side."""
    gathered = patch(plain(SIX), "k", detail="ops")
    monkeypatch.setattr(record_batches, "_WORTH", 0.9)  # of six stores, five are fewer
    kept = patch(plain(SIX), "k", detail="ops")
    monkeypatch.setattr(record_batches.Gatherer, "of", lambda *_: None)
    assert kept == patch(plain(SIX), "k", detail="ops") != gathered


@pytest.mark.parametrize("lost", [0, 1, -1], ids=["first", "second", "last"])
@pytest.mark.parametrize("way", [KEPT, READ])
def test_where_one_record_is_not_made_the_others_are_stored_one_by_one(
    lost: int, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which thread has which goes by all of them; no other is lost."""
    names = [name for name in made(STORES, way).names if name.startswith(("store", "iteration"))]
    missing, fits = names[lost], Instrumenter._fits
    monkeypatch.setattr(record_batches, "_THREADS", 999 if way == READ else 3)
    monkeypatch.setattr(
        Instrumenter,
        "_fits",
        lambda self, place, kept: place.name != missing and fits(self, place, kept),
    )
    some = patch(plain(STORES), "k", detail="ops")
    assert set(some.names) == {*made(STORES, way).names} - {missing}
    assert not any(each.op == "PRMT" for each in looped(some))
    found: list[Trace] = []
    _, left = run(some, "k", 2, (0, 0, 0, TURNS), traces=found)
    assert left == results(patch(plain(STORES), "k", detail="kernel"))
    assert not found[0].launches[0].notes and not found[0].launches[0].dropped
    assert len(found[0].events) == 2 * (2 + TURNS * 3)


LANES = """
.visible .entry k(.param .u64 p, .param .u32 n)
{
 .reg .u64 a, b, c; .reg .u32 lane, x, y, z, m, u, v, w; .reg .u64 d;
 ld.param.u64 a, [p]; mov.u32 u, %ctaid.x; mov.u32 lane, %laneid;
 mul.wide.u32 b, lane, 16; add.u64 b, b, a;
 shl.b32 x, lane, 3; mov.u32 y, 128; shl.b32 z, y, x; st.global.u32 [b], z;
 ld.global.u32 x, [b+4]; cvt.u64.u32 c, x; shl.b64 d, c, lane; st.global.u64 [b+64], d;
 ld.global.u32 y, [b+8]; ld.global.u32 z, [b+12]; prmt.b32 m, y, z, 0xdddd;
 lop3.b32 w, m, x, y, 0xca; st.global.u32 [b+128], w;
 lop3.b32 w, m, 0x12345678, y, 0xca; st.global.u32 [b+256], w;
 lop3.b32 w, m, u, y, 0xca; st.global.u32 [b+512], w;
 add.u32 w, y, u; mul.lo.u32 w, w, z; st.global.u32 [b+1024], w;
 ret;
}
"""
R, U, HEX = r"R(\d+)", r"UR(\d+)", r"(0x[0-9a-f]+)"
FORMS = {
    rf"IMAD\.SHL\.U32 {R}, {R}, {HEX}, RZ": lane_forms.multiply_by,
    rf"SHF\.L\.U32 {R}, {R}, {R}, RZ": lane_forms.shift_left,
    rf"SHF\.L\.U64\.HI {R}, {R}, {R}, RZ": lambda *them: lane_forms.shift_left(*them, high=True),
    rf"PRMT {R}, {R}, 0xdddd, {R}": lambda a, b, c: lane_forms.spread_sign(a, b, c, 5),
    rf"LOP3\.LUT {R}, {R}, {R}, {R}, 0xca, !PT": lane_forms.select,
    rf"LOP3\.LUT {R}, {R}, {HEX}, {R}, 0xca, !PT": lane_forms.select_constant,
    rf"LOP3\.LUT {R}, {R}, {U}, {R}, 0xca, !PT": lane_forms.select_uniform,
    rf"VIADD {R}, {R}, {U}": lane_forms.add_uniform,
    rf"S2R {R}, SR_LANEID": lambda a: f.special(a, f.LANE),
}


@pytest.mark.compiled
def test_forms_are_what_the_assembler_makes() -> None:
    unseen = {*FORMS}
    for text, word in assembled(LANES, "sm_90a"):
        for form, make in FORMS.items():
            if found := re.fullmatch(form, text.replace(".reuse", "")):
                step = make(*(int(each, 0) for each in found.groups()))
                made = step.high << 64 | step.low & ~0xF000 | 7 << 12
                assert hex(made) == hex(word & (1 << 105) - 1), text
                unseen.discard(form)
    assert not unseen
