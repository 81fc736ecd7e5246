"""Conditions, indices, roles, chosen warps and blocks in Triton kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ikp
from ikp.core.abi import OverflowMode
from tests.backends.sass import LOCAL_MEMORY, SYNCHRONISING, compile_kernel, spec
from tests.kernels import choices
from tests.trace_processor import check_trace

KERNELS = {
    "conditional": choices.conditional_records,
    "placed": choices.placed_records,
}
WRONG = {
    "ring_with_index": "an index means nothing",
    "block_condition": "must be one boolean or integer",
    "wrong_index": "must be one integer",
    "negative_index": "0 or more",
    "numbered_role": "ikp.role needs a name",
}


def zeros(n: int) -> Any:
    import torch

    return torch.zeros(n, dtype=torch.int32)


def records(trace: ikp.Trace) -> list[list[tuple[str, float | None]]]:
    found: list[list[tuple[str, float | None]]] = [[] for _ in range(len(trace.slots))]
    events = trace.events
    for slot, region, payload in zip(events.slot, events.region, trace.payload, strict=True):
        value = None if np.isnan(payload) else float(payload)
        found[slot].append((trace.regions[region].name, value))
    return found


@pytest.mark.interp
@pytest.mark.parametrize("n", [0, 1, 7])
@pytest.mark.parametrize("name", KERNELS)
def test_programs_record_what_they_choose(name: str, n: int, tmp_path: Path) -> None:
    path = tmp_path / "choices.pftrace"
    with ikp.profile(path) as prof:
        getattr(choices, name)[(4,)](zeros(4), n, prof.buffer(name))
    trace = prof.trace
    assert records(trace) == [KERNELS[name](pid, n) for pid in range(4)]
    assert trace.launches[0].dropped == 0
    check_trace(path, trace)
    assert [trace.roles[i] for i in trace.slots.role] == [
        "worker" if name == "conditional" else ""
    ] * 4


@pytest.mark.interp
def test_chosen_blocks_get_all_the_room() -> None:
    size = 128 + 2 * (64 + 32 * 16)
    with ikp.profile(buffer_size=size) as prof:
        choices.conditional[(9,)](zeros(9), 5, prof.buffer("k", blocks=range(1, 9, 4)))
    assert prof.trace.slots.block.tolist() == [1, 5]
    assert prof.trace.launches[0].capacity == 32
    assert records(prof.trace) == [choices.conditional_records(pid, 5) for pid in (1, 5)]


@pytest.mark.interp
def test_choosing_warps_that_do_not_exist_is_told() -> None:
    with pytest.warns(ikp.IkpWarning, match="chosen to record exist"), ikp.profile() as prof:
        choices.conditional[(2,)](zeros(2), 5, prof.buffer("k", warps=[3]))
    assert len(prof.trace.slots) == 0


@pytest.mark.interp
def test_what_is_so_of_several_launches_is_told_once() -> None:
    prof = ikp.profile().__enter__()
    for label in ("k", "other", "k"):
        choices.conditional[(2,)](zeros(2), 5, prof.buffer(label, warps=[3]))
    with pytest.warns(ikp.IkpWarning, match="chosen to record exist") as told:
        prof.__exit__(None, None, None)
    texts = [str(each.message).partition(": ")[0] for each in told]
    assert texts == ["k (2 launches)", "other"]


@pytest.mark.interp
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_choice_is_refused_in_the_interpreter(name: str) -> None:
    with ikp.profile(overflow="wrap" if "ring" in name else "stop") as prof:
        with pytest.raises(Exception, match=WRONG[name]):
            getattr(choices, name)[(1,)](zeros(1), prof.buffer("k"))
        prof.reset()


@pytest.mark.compiled
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_choice_is_refused_by_the_compiler(name: str) -> None:
    mode = OverflowMode.WRAP if "ring" in name else OverflowMode.STOP
    with pytest.raises(Exception, match=WRONG[name]):
        compile_kernel(getattr(choices, name), {"out": "*i32"}, spec(mode))


@pytest.mark.compiled
@pytest.mark.parametrize("capability", [80, 90, 100])
@pytest.mark.parametrize("name", KERNELS)
def test_choices_neither_synchronise_nor_spill(name: str, capability: int) -> None:
    types = {"out": "*i32", "n": "i32"}
    code = compile_kernel(getattr(choices, name), types, spec(), capability=capability)
    assert code.count(SYNCHRONISING) == code.count(LOCAL_MEMORY) == {}
