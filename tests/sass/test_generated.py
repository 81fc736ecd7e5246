"""Analyses of random kernels, beside what they mean: slow definitions, by a search of all paths."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import pytest

from ikp.sass.control_flow.flow import Flow
from ikp.sass.control_flow.graph import reached
from ikp.sass.dataflow.def_use import DefUse
from ikp.sass.disassembly.effects import bit, effects, members
from ikp.sass.disassembly.widths import known
from tests.goldens.corpus import others, printed
from tests.goldens.forms import instruction
from tests.goldens.generated import Made
from tests.sass import second_reading
from tests.sass.walk import clobbers

pytestmark = pytest.mark.any_pins

SEEDS = range(100, 116)
"""None of those of the goldens."""


@cache
def kernel(seed: int) -> Made:
    return Made(seed=seed)


def reachable(flow: Flow, start: int, without: int | None = None) -> set[int]:
    """Return the blocks that paths lead to which never come to one."""
    return reached([start], flow.graph.after.__getitem__, lambda block: block != without)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_block_dominates_what_no_path_reaches_without_it(seed: int) -> None:
    flow = kernel(seed).flow
    every = reachable(flow, 0)
    assert set(flow.dominance.entered) == every
    for above in every:
        found = {each for each in every if flow.dominance.holds(above, each)}
        assert found == every - reachable(flow, 0, without=above)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_loop_is_what_reaches_its_jump_back_without_its_header(seed: int) -> None:
    """Code that no jump leads to may be in it: so are the bodies of collectives."""
    flow = kernel(seed).flow
    every, graph = reachable(flow, 0), flow.graph
    back: dict[int, set[int]] = {}
    for block in every:
        for to in graph.after[block]:
            if block not in reachable(flow, 0, without=to):
                back.setdefault(to, set()).add(block)
    bodies = {
        header: {header}
        | {
            each
            for each in range(len(graph.blocks))
            if each != header and jumps & reachable(flow, each, without=header)
        }
        for header, jumps in back.items()
    }
    assert {header: set(body) for header, body in flow.bodies.items()} == bodies


@pytest.mark.parametrize("seed", SEEDS)
def test_a_register_is_live_where_a_path_reads_it_before_it_is_overwritten(seed: int) -> None:
    flow, live = kernel(seed).flow, kernel(seed).liveness
    named = [each for each in members(live.used) if each != bit("R1")]
    for at, found in enumerate(live.own):
        for register in named:
            assert clobbers(flow, at, register) == bool(found >> register & 1), (at, register)


def written_before(flow: Flow, at: int, register: int) -> Iterable[int]:
    """Return the instructions whose value in a register may be there before another one."""
    found, seen = set[int](), set[int]()
    work = [edge.source for edge in flow.before[at]]
    while work:
        here = work.pop()
        if here in seen:
            continue
        seen.add(here)
        effect = flow.effects[here]
        if effect.writes >> register & 1:
            found.add(here)
        if not effect.kills >> register & 1:
            work += [edge.source for edge in flow.before[here]]
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_a_value_is_of_the_writes_on_paths_to_its_use(seed: int) -> None:
    flow = kernel(seed).flow
    known_uses, every = DefUse(flow), flow.instructions(frozenset(reachable(flow, 0)))
    for at in sorted(every):
        for register in members(flow.effects[at].reads):
            found = set(written_before(flow, at, register)) & every
            assert known_uses.sources(at, 1 << register) == found, (at, register)


def test_both_readings_of_every_form_agree() -> None:
    """Of all texts that are known: 6,365 forms of sm_90, and 2,638 of all chips."""
    read = 0
    for text in (*printed()[::2], *others()):
        if not text or not known((each := instruction(text)).opcode):
            continue
        guard = f"@{each.guard} " if each.guard else ""
        second = second_reading.effect(f"{guard}{each.opcode} {each.rest}".rstrip())
        assert tuple(effects(each)) == tuple(second), text
        read += 1
    assert read > 8000
