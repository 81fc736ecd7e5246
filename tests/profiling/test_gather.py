"""Several processes, each with its rank: a trace per rank, and all in one."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ikp
from ikp.core.host_clock import Handshake, HostClock
from ikp.core.trace import Trace
from ikp.errors import UsageError
from ikp.profiling.gather import _listed, _numbered, _on_own_clock, _told
from ikp.profiling.hosts import placed
from tests.edit.test_select import example
from tests.exporters.perfetto.examples import launch
from tests.host_traces.simulated import launches
from tests.processes import run_ranks
from tests.trace_processor import check_trace

SIZE = 3
NO_GROUP = "ikp.gather needs the process group of all ranks, and there is none."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def ranks(folder: Path) -> list[dict[str, Any]]:
    """Return what each of the processes found; its traces lie in ``folder``."""
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    return run_ranks("gloo", "cpu", SIZE, folder)


def own(folder: Path) -> list[Trace]:
    return [ikp.load(folder / f"own.{rank}.pftrace") for rank in range(SIZE)]


def steps(trace: Trace) -> list[tuple[int | None, int, int]]:
    """Return rank, block and payload of each step."""
    return [(one.rank, one.block, int(one.payload or 0)) for one in trace.ranges()]


def wanted(ranks: list[int]) -> list[tuple[int | None, int, int]]:
    return [(r, block, i) for r in ranks for block in range(2 + r) for i in range(3 + r)]


def test_each_rank_writes_a_trace_of_its_own(ranks: list[dict[str, Any]], folder: Path) -> None:
    assert sorted(path.name for path in folder.glob("own.*")) == [
        f"own.{rank}.pftrace" for rank in range(SIZE)
    ]
    for rank, trace in enumerate(own(folder)):
        assert steps(trace) == wanted([rank])
        assert [launch.rank for launch in trace.launches] == [rank]


def test_all_ranks_in_one_trace(ranks: list[dict[str, Any]], folder: Path) -> None:
    assert [one["all"] for one in ranks] == [True, False, False]
    whole = ikp.load(folder / "all.pftrace")
    assert steps(whole) == wanted([0, 1, 2])
    assert whole.launches == tuple(launch for each in own(folder) for launch in each.launches)
    assert whole.provenance["ranks"].startswith("ranks 0, 1, 2 on ")
    assert "different hosts" not in whole.provenance["ranks"]
    assert f"{whole.provenance['ranks']}." in str(whole.stats())
    for rank, (begin, end) in enumerate(one["window"] for one in ranks):
        rows = whole.slots.launch == rank
        assert begin <= whole.slots.start_ns[rows].min() <= whole.slots.end_ns[rows].max() <= end


def test_each_rank_has_its_own_statistics(ranks: list[dict[str, Any]], folder: Path) -> None:
    rows = ikp.load(folder / "all.pftrace").stats(by="rank")
    found = {(row.group, row.region): row.count for row in rows}
    assert found == {
        (f"rank {rank}", region): count
        for rank in range(SIZE)
        for region, count in (("step", (2 + rank) * (3 + rank)), ("done", 2 + rank))
    }


@pytest.mark.tp
@pytest.mark.parametrize("name", ["own.0", "own.1", "own.2", "all", "late", "group"])
def test_the_viewer_shows_what_was_recorded(
    ranks: list[dict[str, Any]], folder: Path, name: str
) -> None:
    check_trace(folder / f"{name}.pftrace", ikp.load(folder / f"{name}.pftrace"))


def test_another_rank_can_get_them_and_launches_get_their_ranks_late(
    ranks: list[dict[str, Any]], folder: Path
) -> None:
    assert [one["late"] for one in ranks] == [False, False, True]
    assert [one["early rank"] for one in ranks] == [None] * SIZE
    launches = ikp.load(folder / "late.pftrace").launches
    assert [(launch.label, launch.rank) for launch in launches] == [
        ("early", rank) for rank in range(SIZE)
    ]


def test_a_launch_that_has_a_rank_keeps_it() -> None:
    trace = replace(example(), launches=(launch("of rank 5", rank=5), launch("early")))
    assert [(one.label, one.rank) for one in _numbered(trace, 1).launches] == [
        ("of rank 5", 5),
        ("early", 1),
    ]


def test_a_group_of_some_ranks(ranks: list[dict[str, Any]], folder: Path) -> None:
    assert [one.get("group") for one in ranks] == [False, None, True]
    assert steps(ikp.load(folder / "group.pftrace")) == wanted([0, 2])
    assert ranks[1]["not in it"].startswith("rank 1 called ikp.gather with a group that it is not")


def test_ranks_that_recorded_nothing_add_nothing(ranks: list[dict[str, Any]]) -> None:
    assert [one["some recorded nothing"] for one in ranks] == [[0, 1], None, None]
    assert [one["none recorded"] for one in ranks] == [0, None, None]


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("early", NO_GROUP),
        ("after", NO_GROUP),
        ("no trace", "ikp.gather wants the Trace of every rank, and got None on rank 2. "),
        ("which dst", "ikp.gather needs one rank for the trace: dst is 0 on rank 0; 1 on ranks 1"),
        ("no dst", "ikp.gather needs one rank for the trace: dst is 3 on ranks 0, 1, 2. "),
        ("versions", f"ranks have different versions of ikp: {ikp.__version__} on ranks 0, 1; 0."),
    ],
)
def test_every_rank_is_told_what_is_wrong(
    ranks: list[dict[str, Any]], what: str, message: str
) -> None:
    told = [one[what] for one in ranks]
    assert [text[: len(message)] for text in told] == [message] * SIZE
    assert len(set(told)) == 1


@pytest.mark.parametrize("again", [0, 1])
def test_ranks_of_other_hosts_are_placed_by_messages(
    ranks: list[dict[str, Any]], folder: Path, again: int
) -> None:
    """The last rank's clock is 3 ms behind, and the one before it is in step, as far as is seen."""
    whole = ikp.load(folder / f"hosts{again}.pftrace")
    first, second, third = whole.provenance["ranks"].split("; ")
    assert "whose" not in first
    agrees = re.fullmatch(r"rank 1 on .*, whose clock agrees within ([\d.,]+) us", second)
    late = re.fullmatch(
        r"rank 2 on .*, whose clock was ([\d.,]+) us behind, which is put right within ([\d.,]+) "
        "us",
        third,
    )
    assert agrees and late, whole.provenance["ranks"]
    apart, within = (float(each.replace(",", "")) for each in late.groups())
    true = [int(each.slots.start_ns.min()) for each in own(folder)]
    found = [int(whole.slots.start_ns[whole.slots.launch == rank].min()) for rank in range(SIZE)]
    assert found[:2] == true[:2]
    assert abs(found[2] - true[2]) <= within * 1e3 < 3_000_000
    assert abs(apart - 3_000) <= within
    assert whole.provenance["boot"] == "a"


def test_bounds_grow_by_what_is_not_known_of_another_hosts_clock() -> None:
    """A clock that was asked once may have drifted since a launch, by 200 ppm at most."""
    trace = launches([0, 1_000_000_000])
    at = int(trace.slots.end_ns.max())
    clock = HostClock([Handshake(at, at + 5_000_000, at + 5_020_000, 0, 1)])
    moved, said = placed(trace, clock, "a")
    assert said.startswith("was 5,010.0 us behind, which is put right within 2")
    early, late = (each.clock.unix_bound_ns or 0.0 for each in moved.launches)
    assert late == pytest.approx(1_000 + 10_000, abs=2)
    assert early == pytest.approx(late + 200e-6 * 1e9, rel=0.01)
    assert (moved.slots.end_ns[-1] - trace.slots.end_ns[-1]) == 5_010_000
    near = HostClock([Handshake(at, at - 2_000, at + 18_000, 0, 1)])
    kept, said = placed(trace, near, "a")
    assert said.startswith("agrees within 2")
    assert (kept.slots.start_ns == trace.slots.start_ns).all()
    assert kept.launches[-1].clock.unix_bound_ns == pytest.approx(1_000 + 10_000 + 8_000, abs=2)


def test_a_trace_of_another_boot_keeps_its_times() -> None:
    trace = replace(example(), provenance={"boot": "before"})
    clock = HostClock([Handshake(0, 10**9, 10**9 + 20, 0, 1)])
    assert _on_own_clock(trace, "now", {"now": clock}) == (trace, "")


def test_containers_of_one_host_have_one_clock() -> None:
    ranks = [{"rank": i, "host": "ab"[i], "boot": "x", "clock": ""} for i in range(2)]
    assert _told(ranks) == "rank 0 on a; rank 1 on b"


def test_many_ranks_are_cut_short() -> None:
    assert _listed({"0.1": list(range(99))}).endswith(
        "ranks 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, ..."
    )


def test_the_files_of_all_ranks_are_one_too(ranks: list[dict[str, Any]], folder: Path) -> None:
    whole, files = ikp.load(folder / "all.pftrace"), ikp.edit.concat(own(folder))
    assert steps(files) == steps(whole)
    assert files.launches == whole.launches


def test_one_rank_of_all_can_be_chosen(ranks: list[dict[str, Any]], folder: Path) -> None:
    whole = ikp.load(folder / "all.pftrace")
    assert steps(ikp.edit.select(whole, rank=1)) == wanted([1])
    assert steps(ikp.edit.select(whole, rank=[0, 2])) == wanted([0, 2])
    with pytest.raises(UsageError, match=r"no launch has rank=7; the trace has 0, 1, 2\."):
        ikp.edit.select(whole, rank=7)
