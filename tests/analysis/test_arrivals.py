"""Messages between launches and ranks: how long they took, and who was waited for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import ikp
from ikp.analysis.arrivals import Arrivals, by_ranks
from ikp.analysis.explain.verdict import Finding
from ikp.cli.main import cli
from ikp.edit import concat, connect, shift
from ikp.trace import Trace
from tests.analysis.example import launch, trace

pytestmark = pytest.mark.any_pins

PUT, WAIT = 0, 1
FLIGHT = 1_300
"""Nanoseconds from the end of a put to the end of the wait for it."""


def rank(number: int, events: list[tuple[int, int, int, int]], bound_ns: float | None) -> Trace:
    """Return the launch of one rank: four blocks on SMs 0 to 3, an event of each."""
    one = launch("ring", rank=number, device=f"NVIDIA H200 (cuda:{number})")
    one = replace(one, clock=replace(one.clock, unix_bound_ns=bound_ns))
    payload = {row: float(slot) for row, (slot, *_) in enumerate(events)}
    regions = ("put", "wait", "work")
    return trace(events, launches=(one,), regions=regions, payload=payload, residence=100_000)


def ranks(
    late_block: int = 2, late_ns: int = 41_000, bound_ns: float | None = 900.0
) -> list[Trace]:
    """Return a rank that puts a message from each block, one of them late, and one that waits."""
    sent = [2_000 + (late_ns if block == late_block else 0) for block in range(4)]
    puts = [(block, PUT, at, at + 500) for block, at in enumerate(sent)]
    waits = [(block, WAIT, 2_000, at + 500 + FLIGHT) for block, at in enumerate(sent)]
    return [rank(0, puts, bound_ns), rank(1, waits, bound_ns)]


def found(traces: list[Trace], name: str = "late-message") -> list[Finding]:
    whole = connect(concat(traces), "put", "wait", within="trace")
    verdict = whole.explain(1)
    return [one for one in (*verdict.findings, *verdict.symptoms) if one.id == name]


@pytest.mark.parametrize("late_block", range(4))
def test_who_was_waited_for_is_named(late_block: int) -> None:
    (one,) = found(ranks(late_block))
    assert one.title == (
        f"rank 1 waits up to 41.0 us in wait for rank 0's SM {late_block}, whose block "
        f"{late_block} comes to put that late"
    )
    assert one.confidence == "measured" and "clocks that agree within 1.80 us" in one.rationale
    assert one.where.warps == ((late_block, 0),) and one.where.regions == ("wait", "put")
    assert one.where.window_ns == (2_000, 2_000 + 41_000 + 500 + FLIGHT)
    assert one.bound_share == pytest.approx(41_000 / 4 / 100_000)
    assert one.where.count == 1


def test_a_launch_that_begins_late_is_no_blocks_fault() -> None:
    sender, receiver = ranks(late_block=2, late_ns=41_000)
    events = receiver.events
    longer = replace(events, end_ns=events.end_ns + 60_000)
    apart = [shift(sender, 60_000), replace(receiver, events=longer)]
    (block,), (whole,) = found(apart), found(apart, "late-launch")
    assert block.title.startswith("rank 1 waits up to 43.0 us in wait for rank 0's SM 2, whose")
    assert (
        whole.title
        == "rank 1 waits up to 58.0 us in wait for rank 0, whose kernel begins that late"
    )
    assert whole.bound_share == pytest.approx(58_000 / 100_000)
    assert found(ranks(late_block=2, late_ns=41_000), "late-launch") == []


def test_less_than_the_clocks_know_is_no_finding() -> None:
    assert found(ranks(late_ns=50_000, bound_ns=26_000.0)) == []
    (one,) = found(ranks(late_ns=50_000, bound_ns=None))
    assert one.confidence == "possible" and "are not aligned" in one.rationale


def booted(traces: list[Trace], *boots: str) -> list[Trace]:
    known = [{"boot": each} if each else {} for each in boots]
    return [replace(one, provenance=each) for one, each in zip(traces, known, strict=True)]


def test_clocks_of_several_hosts_are_not_compared() -> None:
    """Each launch is within its bound of its own host's clock: nothing is known between two."""
    (one,) = found(booted(ranks(), "one", "other"))
    assert one.confidence == "possible" and "are not aligned" in one.rationale
    (one,) = found(booted(ranks(), "one", "one"))
    assert one.confidence == "measured"


@pytest.mark.parametrize(
    ("boots", "said"),
    [
        (("one", "one"), "the times of both GPUs agree within 1.80 us, the sum of their bounds"),
        (("one", "other"), "times are of several hosts, or boots of one, with a clock each"),
        (("", "one"), ""),
    ],
)
def test_merge_says_how_well_clocks_agree(
    boots: tuple[str, str], said: str, tmp_path: Path
) -> None:
    paths = [tmp_path / f"x.rank{number}.pftrace" for number in (0, 1)]
    for path, each in zip(paths, booted(ranks(), *boots), strict=True):
        each.save(path)
    shown = CliRunner().invoke(cli, ["merge", *map(str, paths), str(tmp_path / "all.pftrace")])
    stats = CliRunner().invoke(cli, ["stats", str(tmp_path / "all.pftrace")]).output
    for output in (shown.output, stats):
        assert said in output
        assert ("agree" in output) is bool(said)
    again = CliRunner().invoke(
        cli, ["merge", str(tmp_path / "all.pftrace"), str(tmp_path / "again.pftrace")]
    )
    assert said in again.output


def test_messages_sent_in_time_are_no_finding() -> None:
    assert found(ranks(late_ns=0)) == []
    alone = ranks()[1]
    assert [one for one in alone.explain().findings if one.id == "late-message"] == []


def test_delays_are_from_end_to_end() -> None:
    whole = connect(concat(ranks()), "put", "wait", within="trace")
    got = Arrivals.of(whole)
    assert got.delay_ns(whole).tolist() == [FLIGHT] * 4
    assert sorted(got.late_ns(whole).tolist()) == [0, 0, 0, 41_000]
    assert set(got.sender.tolist()) == {0} and set(got.receiver.tolist()) == {1}
    within = connect(
        trace([(0, 0, 0, 5), (1, 1, 2, 9)], payload={0: 1.0, 1: 1.0}),
        "load",
        "dot",
        within="launch",
    )
    assert not len(Arrivals.of(within)), "inside one launch"
    assert not len(Arrivals.of(concat(ranks()))), "no arrows"


def test_merge_draws_arrows_and_prints_what_they_took(tmp_path: Path) -> None:
    paths = [tmp_path / f"x.rank{number}.pftrace" for number in (0, 1)]
    for path, part in zip(paths, ranks(), strict=True):
        part.save(path)
    out = tmp_path / "all.pftrace"
    said = CliRunner().invoke(cli, ["merge", "--connect", "put:wait", *map(str, paths), str(out)])
    assert said.exit_code == 0, said.output
    assert (
        "rank 0 to rank 1: 4 messages, 1.30 us each (median; 1.30 to 1.30), clocks within 1.80 us"
        in said.output
    )
    back = ikp.load(out)
    assert np.count_nonzero(back.args["flow_in"].given) == 4


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("put", "--connect put: give two regions, as in --connect put:wait."),
        (":wait", "--connect :wait: give two regions"),
        ("put:", "--connect put:: give two regions"),
        ("put:get", "--connect put:get: the trace has no region 'get'; it has: 'put', 'wait', "),
        ("put:work", "--connect put:work: the trace has no events of region 'work'."),
    ],
)
def test_merge_says_which_option_names_what_cannot_be_joined(
    option: str, words: str, tmp_path: Path
) -> None:
    paths = [tmp_path / f"x.rank{number}.pftrace" for number in (0, 1)]
    for path, part in zip(paths, ranks(), strict=True):
        part.save(path)
    command = ["merge", "--connect", option, *map(str, paths), str(tmp_path / "all.pftrace")]
    said = CliRunner().invoke(cli, command)
    assert said.exit_code == 1 and words in said.output


def test_merge_takes_names_that_have_colons(tmp_path: Path) -> None:
    named = {"put": "put @ring.py:7", "wait": "wait:all"}
    paths = [tmp_path / f"x.rank{number}.pftrace" for number in (0, 1)]
    for path, part in zip(paths, ranks(), strict=True):
        regions = tuple(replace(one, name=named.get(one.name, one.name)) for one in part.regions)
        replace(part, regions=regions).save(path)
    option = ":".join(named.values())
    command = ["merge", "--connect", option, *map(str, paths), str(tmp_path / "all.pftrace")]
    said = CliRunner().invoke(cli, command)
    assert said.exit_code == 0 and "4 messages" in said.output, said.output


def test_launches_without_ranks_go_by_their_labels() -> None:
    traces = ranks()
    bare = [
        replace(
            each,
            launches=(replace(each.launches[0], rank=None, device="NVIDIA H200", label=label),),
        )
        for each, label in zip(traces, ("left", "right"), strict=True)
    ]
    whole = connect(concat(bare), "put", "wait", within="trace")
    (line,) = by_ranks(whole, Arrivals.of(whole))
    assert line.startswith("left to right: 4 messages, 1.30 us") and line.endswith("within 0.00 us")
