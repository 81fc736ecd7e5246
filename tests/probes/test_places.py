"""Where time goes in a kernel: what is found, its names, and that it holds on every path."""

from __future__ import annotations

import random
import re
from functools import cache
from pathlib import Path

import pytest

from ikp.probes.points.probe_points import Level, ProbeRegion, ProbeRegions, marks
from ikp.probes.points.sese_regions import Point, Regions
from ikp.sass.control_flow.flow import Flow
from tests.sass import kernels
from tests.sass.compiled import CASES, code, machine
from tests.sass.texts import sass

pytestmark = pytest.mark.any_pins

SOURCE = Path(kernels.__file__).read_text().splitlines()


@cache
def places(name: str) -> ProbeRegions:
    return ProbeRegions(machine(name).flow, code(name).ptx)


def told(found: list[ProbeRegion]) -> list[str]:
    """Return the names, with the source's text in place of its line numbers."""
    return [re.sub(r"@kernels\.py:([\d+]+)", lambda m: f"@ {_texts(m[1])}", p.name) for p in found]


def _texts(numbers: str) -> str:
    return "+".join(map(_text, numbers.split("+")))


def _text(number: str) -> str:
    return SOURCE[int(number) - 1].strip().partition("(")[0]


def in_loop(name: str, level: Level = Level.OPS) -> list[str]:
    """Return what the first loop's turn holds."""
    found = places(name).at(level)
    turn = next(place for place in found if place.kind == "iteration")
    assert turn.end
    return told([p for p in found if p is not turn and turn.start <= p.start < turn.end])


@pytest.mark.compiled
def test_a_pipelined_product() -> None:
    assert in_loop("matmul") == [
        "cp.async wait @ x = tl.load+y = tl.load",
        "barrier @ x = tl.load",
        "wgmma x4 @ acc = tl.dot",
        "wgmma wait @ acc = tl.dot",
        "barrier @ left += BK",
        "cp.async x4 @ x = tl.load",
        "cp.async x4 @ y = tl.load",
    ]
    assert told(places("matmul").at(Level.LOOPS)) == [
        "matmul",
        "loop @ for _ in range",
        "iteration @ for _ in range",
    ]


@pytest.mark.compiled
def test_a_pipelined_product_of_the_fifth_generation() -> None:
    assert in_loop("matmul sm_100") == [
        "cp.async wait @ x = tl.load+y = tl.load",
        "barrier @ x = tl.load",
        "barrier @ acc = tl.dot",
        "tcgen05.mma x4 @ acc = tl.dot",
        "barrier @ acc = tl.dot",
        "tcgen05 wait @ acc = tl.dot",
        "cp.async x4 @ x = tl.load",
        "cp.async x4 @ y = tl.load",
    ]
    names = told(places("matmul sm_100").all)
    assert {"tcgen05.st @ acc = tl.dot", "tcgen05.ld @ acc = tl.dot"} <= set(names)
    assert names[1] == "tensor memory wait @ def matmul"
    assert not [name for name in names if name.startswith("copy wait")]


@pytest.mark.compiled
def test_products_of_warps() -> None:
    names = in_loop("attention sm_80")
    assert names[0] == "cp.async wait @ keys = tl.load+values = tl.load"
    whose = {re.sub(r"x\d+ ", "", name) for name in names if name.startswith("mma")}
    assert whose == {"mma @ scores = tl.dot", "mma @ acc = tl.dot"}


@pytest.mark.compiled
def test_a_product_whose_operands_come_by_tma() -> None:
    assert in_loop("matmul TMA", Level.WAITS)[0] == ("mbarrier wait @ x = left.load+y = right.load")
    assert [name for name in in_loop("matmul TMA") if "TMA" in name] == [
        "TMA load @ x = left.load",
        "TMA load @ y = right.load",
    ]


@pytest.mark.compiled
def test_attention() -> None:
    assert in_loop("attention") == [
        "cp.async wait @ keys = tl.load+values = tl.load",
        "barrier @ keys = tl.load",
        "wgmma x8 @ scores = tl.dot",
        "wgmma wait @ scores = tl.dot+acc = tl.dot",
        "wgmma x8 @ acc = tl.dot",
        "barrier @ keys = tl.load",
        "cp.async x4 @ keys = tl.load",
        "cp.async x4 @ values = tl.load",
    ]


@pytest.mark.compiled
def test_a_norm_waits_for_its_loads_by_name() -> None:
    second = [p for p in places("rms_norm").at(Level.WAITS) if p.kind == "load wait"][-3:]
    assert [re.sub(" @.*", "", place.name) for place in second] == [
        "wait for row", "wait for gain", "wait for gain",
    ]  # fmt: skip
    assert all(place.waits and place.start == place.end for place in second)


@pytest.mark.compiled
def test_a_load_that_waits_for_a_load() -> None:
    names = in_loop("gathered", Level.WAITS)
    assert names[0] == "wait for page @ page = tl.load"
    assert names[-1] == "wait for load @ total += tl.load"


@pytest.mark.compiled
def test_without_ptx_the_lines_of_products_are_those_of_their_wait() -> None:
    found = ProbeRegions(machine("matmul").flow).all
    (product,) = (place for place in found if place.kind == "product")
    assert product.name.endswith("(line of its wait)")


@pytest.mark.compiled
@pytest.mark.parametrize("name", CASES)
def test_stretches_alternate_and_nest_on_every_path(name: str) -> None:
    found = places(name).all
    assert len(found) > 5
    alternates(machine(name).flow, found)
    walk(machine(name).flow, found, random.Random(name))


def alternates(flow: Flow, found: list[ProbeRegion]) -> None:
    """Go through every (instruction, open or not) that any path comes to, for each place."""
    leaving, count = flow.graph.jumps.leaving, len(flow.code.instructions)
    for place in found:
        if place.end is None or place.start == place.end:
            continue
        seen: set[tuple[int, bool]] = set()
        work = [(0, False)]
        while work:
            at, inside = work.pop()
            if (at, inside) in seen:
                continue
            seen.add((at, inside))
            inside = passed(place, Point(at), inside)
            ways = [to for to, _ in leaving.get(at, ((at + 1, ""),)) if to < count]
            taken = Point(at, taken=True)
            if flow.graph.jumps.ends(at):
                left = passed(place, taken, inside)
                assert not left, f"{place.name} is open where the kernel ends"
            for to in ways:
                edge = Point(at, after=True) if to == at + 1 else taken
                work.append((to, passed(place, edge, inside)))


def passed(place: ProbeRegion, point: Point, inside: bool) -> bool:
    if point in place.ends:
        assert inside, f"the end of {place.name} comes without its start"
        inside = False
    if point == place.start:
        assert not inside, f"the start of {place.name} comes twice"
        inside = True
    return inside


def walk(flow: Flow, found: list[ProbeRegion], chance: random.Random) -> None:
    """Walk at random: what was opened last is closed first."""
    here: dict[Point, list[tuple[ProbeRegion, bool]]] = {}
    for point, place, opens in marks(found):
        here.setdefault(point, []).append((place, opens))
    at, stack = 0, list[ProbeRegion]()
    for _ in range(5000):
        turn(here.get(Point(at), []), stack)
        ways = flow.graph.jumps.leaving.get(at, [(at + 1, "")])
        if not ways or at + 1 >= len(flow.code.instructions):
            at, stack = 0, []
            continue
        to = chance.choice(ways)[0]
        edge = Point(at, after=True) if to == at + 1 else Point(at, taken=True)
        turn(here.get(edge, []), stack)
        at = to


def turn(events: list[tuple[ProbeRegion, bool]], stack: list[ProbeRegion]) -> None:
    for place, opens in events:
        if opens:
            stack.append(place)
        else:
            assert stack.pop() is place


PASSES = (
    *("BSSY B1, `(.L_x_2)", "BSSY B0, `(.L_x_1)", "@P0 BREAK B0", "@P0 BRA `(.L_x_3)"),
    *("BSYNC B0", ".L_x_1:", "NOP", ".L_x_3:", "BSYNC B1", ".L_x_2:", "NOP", "EXIT"),
)
"""Some leave the inner of two places to meet, and wait at the outer: so ptxas made it of stores."""


@pytest.mark.parametrize(
    ("lines", "start", "end", "why"),
    [
        (("NOP", "NOP", "EXIT"), Point(0), Point(1, after=True), ""),
        (("NOP", "NOP", "EXIT"), Point(1), Point(0), "its end comes before its start"),
        (("@P0 BRA `(.L_x_1)", "NOP", ".L_x_1:", "NOP", "EXIT"), Point(1), Point(2),
         "its end can be reached without its start"),
        (("@P0 BRA `(.L_x_1)", "NOP", ".L_x_1:", "NOP", "EXIT"), Point(0), Point(1),
         "it can be left without its end"),
        (("@P0 BRA `(.L_x_1)", "NOP", ".L_x_1:", "NOP", "EXIT"), Point(0), Point(2), ""),
        (("NOP", "@P0 EXIT", "NOP", "EXIT"), Point(0), Point(2), "it can be left without its end"),
        (("NOP", ".L_x_1:", "NOP", "@P0 BRA `(.L_x_1)", "EXIT"), Point(0), Point(1),
         "its end is in another loop than its start"),
        (("NOP", ".L_x_1:", "NOP", "@P0 BRA `(.L_x_1)", "EXIT"), Point(0),
         Point(2, after=True), ""),
        ((".L_x_1:", "NOP", "@P1 BRA `(.L_x_1)", "NOP", "@P0 BRA `(.L_x_1)", "EXIT"),
         Point(0), Point(3), "it can be left without its end"),
        (("BSSY B0, `(.L_x_1)", "@P0 BRA `(.L_x_2)", "NOP", ".L_x_2:", "BSYNC B0", ".L_x_1:",
          "EXIT"),
         Point(2), Point(2, after=True), "threads of one warp may be apart there"),
        (PASSES, Point(5), Point(5, after=True), "threads of one warp may be apart there"),
        (PASSES, Point(7), Point(7, after=True), ""),
        (("@P0 BRA `(.L_x_2)", ".L_x_1:", "NOP", ".L_x_2:", "NOP", "@P1 BRA `(.L_x_1)", "EXIT"),
         Point(2), Point(2, after=True), "it lies in a loop with several entries"),
    ],
)  # fmt: skip
def test_what_holds_a_stretch(lines: tuple[str, ...], start: Point, end: Point, why: str) -> None:
    assert Regions(Flow(sass(*lines))).why_not(start, end) == why


def test_a_loop_that_only_waits_is_a_wait() -> None:
    flow = Flow(sass("NOP", ".L_x_1:", "SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R2], R3",
                     "@!P0 BRA `(.L_x_1)", "EXIT"))  # fmt: skip
    kinds = [(p.kind, p.start, p.end) for p in ProbeRegions(flow).all]
    assert kinds[1:] == [("mbarrier wait", Point(0, after=True), Point(2, after=True))]


POLL = ("NOP", ".L_x_1:", "LDG.E.STRONG.GPU R4, desc[UR4][R2.64]", "CCTL.IVALL",
        "ISETP.NE.U32.AND P0, PT, R4, UR16, PT", "@P0 BRA `(.L_x_1)", "EXIT")  # fmt: skip


@pytest.mark.parametrize(
    ("at", "instead", "waits"),
    [
        (3, POLL[3], True),
        (3, "NANOSLEEP 0x20", True),
        (2, "LDG.E R4, desc[UR4][R2.64]", False),  # may have it from its cache forever
        (3, "IADD3 R2, R2, 0x4, RZ", False),  # reads on
        (3, "RED.E.ADD.STRONG.GPU desc[UR4][R6.64], R7", False),
        (3, "STG.E desc[UR4][R6.64], R4", False),
        (3, "LDG.E.STRONG.GPU R5, desc[UR4][R6.64]", False),
    ],
)
def test_a_loop_that_asks_for_a_flag_is_a_wait(at: int, instead: str, waits: bool) -> None:
    flow = Flow(sass(*POLL[:at], instead, *POLL[at + 1 :]))
    found = ProbeRegions(flow)
    names = {place.name for place in found.at(Level.OPS)}
    assert ("flag wait" in names) == waits == ("loop" not in names)
    if waits:
        assert names == {"k", "flag wait"}
        assert [place.name for place in found.at(Level.LOOPS)] == ["k"]


AGAIN = ("LDS R6, [UR4]", "VIADD R6, R6, 0xffffffff", "IMAD.WIDE R2, R6, 0x4, R8")


@pytest.mark.parametrize(
    ("made", "waits"),
    [
        (AGAIN, True),
        ((*AGAIN[1:],), False),  # R6 is what the iteration before left
        (("LDG.E R6, desc[UR4][R10.64]", *AGAIN[2:]), False),  # two loads: which is the flag?
    ],
)
def test_a_flag_whose_place_is_made_anew_stays_where_it_is(
    made: tuple[str, ...], waits: bool
) -> None:
    flow = Flow(sass(*POLL[:2], "NANOSLEEP 0xfa0", *made, *POLL[2:]))
    assert ("flag wait" in {place.name for place in ProbeRegions(flow).at(Level.OPS)}) == waits


def test_places_that_cross_are_refused() -> None:
    """A kernel's own marks can't: these are made to."""
    flow = Flow(sass("LDG.E R4, desc[UR4][R2.64]", "LDG.E R5, desc[UR4][R2.64]", "EXIT"))
    assert [p.name for p in ProbeRegions(flow).all] == ["k", "load x2"]


@pytest.mark.parametrize(
    ("leaves", "special", "why"),
    [
        ("@P0 BRA `(.L_x_2)", "TID.X", "threads of one warp may be apart where it is left"),
        ("@P0 EXIT", "TID.X", "threads of one warp may be apart where it is left"),
        ("@P0 BRA `(.L_x_2)", "CTAID.X", None),
        ("@P0 EXIT", "CTAID.X", None),
        ("NOP", "TID.X", None),
    ],
)
def test_a_loop_that_threads_leave_apart_is_told(
    leaves: str, special: str, why: str | None
) -> None:
    decides = (f"S2R R3, SR_{special}", "ISETP.NE.AND P0, PT, R3, R2, PT", leaves)
    lines = ["NOP", ".L_x_1:", "IADD3 R2, R2, 0x1, RZ", *decides, "@P1 BRA `(.L_x_1)", "EXIT"]
    flow = Flow(sass(*lines, ".L_x_2:", "STG.E [R4], R2", "EXIT"))
    found = ProbeRegions(flow)
    assert found.left_out == ([f"loop is not recorded: {why}."] if why else [])
    assert ("loop" in [place.kind for place in found.all]) == (why is None)


ROLES = ("@P0 BRA `(.L_x_1)", "STG.E [R4], R2", "EXIT", ".L_x_1:", "LDG.E R5, [R4]", "EXIT")
LAST_LOOP = (".L_x_1:", "ATOMG.E.CAS.STRONG.GPU PT, R5, [R4], R6, R7", "@P0 BRA `(.L_x_1)", "EXIT")
AGAIN = (*LAST_LOOP[:-1], "STG.E [R4], R2", "EXIT")


@pytest.mark.parametrize(
    ("decides", "lines", "rows", "apart"),
    [
        ("ISETP.NE.AND P0, PT, R2, RZ, PT", LAST_LOOP, True, "EXIT"),
        ("ISETP.NE.AND P0, PT, R2, RZ, PT", AGAIN, True, ""),  # they would be told to meet there
        ("ISETP.NE.AND P0, PT, RZ, UR4, PT", LAST_LOOP, True, ""),
        ("ISETP.NE.AND P0, PT, R2, RZ, PT", ROLES, True, "EXIT EXIT LDG STG"),
        ("ISETP.GE.U32.AND P0, PT, R2, 0x80, PT", ROLES, True, ""),
        ("ISETP.GE.U32.AND P0, PT, R2, 0x80, PT", ROLES, False, "EXIT EXIT LDG STG"),
        ("ISETP.GE.U32.AND P0, PT, R2, 0x84, PT", ROLES, True, "EXIT EXIT LDG STG"),
    ],
)  # fmt: skip
def test_threads_part_for_good_where_nothing_is_left_to_be_done_together(
    decides: str, lines: tuple[str, ...], rows: bool, apart: str
) -> None:
    flow = Flow(sass("S2R R2, SR_TID.X", decides, *lines))
    blocks = [flow.graph.blocks[number] for number in Regions(flow, rows).divergent]
    code = flow.code.instructions
    found = sorted(code[at].op for block in blocks for at in range(block.first, block.end))
    assert found == apart.split()


@pytest.mark.compiled
@pytest.mark.parametrize("name", ["matmul", "attention", "gathered"])
def test_only_the_end_of_a_wait_waits_for_scoreboards(name: str) -> None:
    """Any other probe would hold the kernel back."""
    found = places(name).at(Level.OPS)
    assert {each.kind for each in found if each.waits} <= {"load wait"}
    assert any(each.waits for each in found) == any(each.kind == "load wait" for each in found)
