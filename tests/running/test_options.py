"""What ``ikp run`` was asked for, and what follows from it."""

from typing import Any

import pytest

from ikp.errors import UsageError
from ikp.running.run_options import Options
from ikp.unedited.plan import BEST, NEEDED

pytestmark = pytest.mark.any_pins


def options(**other: Any) -> Options:
    plain = {
        "path": "x.pftrace",
        "force": True,
        "detail": None,
        "lines": (),
        "functions": (),
        "ranges": False,
        "max_overhead": None,
        "sample": None,
        "check_results": False,
        "probe": None,
        "tries": None,
        "level": None,
        "mode": "timeline",
        "kernel": None,
        "launch": ":",
        "clock": "cycles",
        "blocks": None,
        "warps": None,
        "buffer_mib": None,
        "memory_mib": 64,
        "replays": 5,
    }
    return Options(**{**plain, **other})


@pytest.mark.parametrize(
    ("other", "level"),
    [
        ({}, BEST),
        ({"detail": "waits", "mode": "totals"}, BEST),
        ({"level": "machine"}, "machine"),
        ({"ranges": True}, BEST),
    ],
)
def test_options_reach_the_programs_process(other: dict[str, Any], level: str) -> None:
    made = options(**other)
    assert made.plan().level == level
    assert made.plan().ranges == other.get("ranges", False)
    text, _, path = str(made).partition("\n")
    assert Options.parse(text, path).plan() == made.plan()


@pytest.mark.parametrize(
    ("other", "probe"),
    [
        ({"detail": "ops"}, NEEDED),
        ({"detail": "ops", "probe": "none"}, ""),
        ({"detail": "ops", "level": "source"}, ""),
        ({"detail": "waits"}, ""),
        ({"probe": "addresses"}, "addresses"),
    ],
)
def test_in_detail_kernels_are_probed_whose_counts_need_it(
    other: dict[str, Any], probe: str
) -> None:
    made = options(**other).plan()
    assert made.probe == probe and ("probe" in str(made)) == (probe == "addresses")
    assert made.needs_machine_code == (probe == "addresses" or other.get("detail") == "waits")


@pytest.mark.parametrize(("given", "kept"), [(None, 8), (3, 3)])
def test_replays_of_a_graph_are_bounded(given: int | None, kept: int) -> None:
    session: Any = options(replays=given).session("x.pftrace")
    assert session._wishes.replays == kept and session.export
    standing: Any = options(replays=given).session(stands_by=True)
    assert standing._wishes.replays == 0 and not standing.export


@pytest.mark.parametrize("chosen", [{"blocks": "::9"}, {"warps": "0-3"}])
def test_a_sample_of_chosen_blocks_is_refused_before_the_program_begins(
    chosen: dict[str, str],
) -> None:
    options(**chosen).plan()
    with pytest.raises(UsageError, match="sample=20 and chosen"):
        options(sample=20, **chosen).check()


def test_a_stream_is_refused_with_its_reason_and_what_to_do() -> None:
    options(overflow="stop").check()
    with pytest.raises(UsageError) as refused:
        options(overflow="stream").check()
    for part in ("--overflow stream", "machine code", "--buffer", "ikp.profile(overflow='stream')"):
        assert part in str(refused.value)
