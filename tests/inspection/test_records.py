"""Every record of every kernel is found, with the clock reads that the assembler says are its."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from ikp.inspection._find_records import find
from ikp.inspection._record import FoundRecords
from ikp.sass.control_flow.flow import Flow
from tests.inspection.compiled import CASES, code, kernel, machine_code
from tests.inspection.ptx_oracle import disassembled, stores

pytestmark = pytest.mark.compiled
ALL = pytest.mark.parametrize("name", CASES)


@cache
def found_in(cubin: bytes) -> tuple[Flow, FoundRecords]:
    flow = Flow(machine_code(cubin))
    return flow, find(flow)


def check_against_ptx(cubin: bytes, ptx: str) -> None:
    flow, found = found_in(cubin)
    instructions = flow.code.instructions
    (_, lines), stored = disassembled(cubin), stores(ptx)
    seen: Counter[int] = Counter()
    starts, ends = set(), set()
    for record in found.records:
        line = lines[instructions[record.store].address]
        expected = stored[line]
        seen[line] += 1
        assert record.tag == expected.tag or expected.tag is None  # ptxas knew more than LLVM
        for span in record.spans:
            start, end = (lines[instructions[at].address] for at in (span.start, span.end))
            assert start in expected.starts
            assert end in expected.ends
            starts.add((line, start))
            ends.add((line, end))
    assert set(seen) == set(stored), "a record in the PTX was not found"
    # A token's register has several starts, one on each way there: the text doesn't say which way.
    assert {start for _, start in starts} == {at for s in stored.values() for at in s.starts}
    assert ends == {(line, end) for line, s in stored.items() for end in s.ends}
    assert found.unresolved == ()


@ALL
def test_each_record_has_the_clock_reads_that_its_ptx_gives_it(name: str) -> None:
    made = code(name)
    check_against_ptx(made.compiled.asm["cubin"], made.ptx)


@ALL
def test_each_store_that_publishes_is_known_as_one(name: str) -> None:
    """They are ikp's own, and no work of a range."""
    made = code(name)
    flow, found = found_in(made.compiled.asm["cubin"])
    (_, lines), text = disassembled(made.compiled.asm["cubin"]), made.ptx.splitlines()
    volatile = [
        at
        for at, each in enumerate(flow.code.instructions)
        if each.op == "STG" and "st.volatile" in text[lines[each.address] - 1]
    ]
    assert sorted(found.published) == volatile
    assert bool(volatile) == ("stream" in name)
    held = {i.address for r in kernel(name).ranges for c in r.copies for i in c.instructions}
    assert held.isdisjoint(flow.code.instructions[at].address for at in volatile)


@ALL
def test_every_clock_read_belongs_to_a_record(name: str) -> None:
    _, found = found_in(code(name).compiled.asm["cubin"])
    used = {at for r in found.records for span in r.spans for at in (span.start, span.end)}
    assert set(found.clocks) <= used
    assert kernel(name).problems == ()


@ALL
def test_what_lies_between_is_what_can_run_between(name: str) -> None:
    flow, found = found_in(code(name).compiled.asm["cubin"])
    for record in found.records:
        for span in record.spans:
            after = reachable([flow.after(at) for at in range(len(flow.before))], span.start)
            before = reachable([[e.source for e in edges] for edges in flow.before], span.end)
            assert set(span.contents) <= after & before
            straight = range(span.start + 1, span.end)
            in_loop = flow.loop_of(span.start)  # there, a token may come around
            if (
                not in_loop
                and span.start < span.end
                and all(flow.after(at) == [at + 1] for at in range(span.start, span.end))
                and all(len(flow.before[at]) == 1 for at in range(span.start + 1, span.end + 1))
            ):
                assert span.contents == tuple(straight)


def reachable(edges: list[list[int]], start: int) -> set[int]:
    seen: set[int] = set()
    work = list(edges[start])
    while work:
        at = work.pop()
        if at not in seen:
            seen.add(at)
            work += edges[at]
    return seen


def test_a_spilled_kernel_is_one() -> None:
    assert code("gemm sm_80 spilled").count(("STL", "LDL"))
