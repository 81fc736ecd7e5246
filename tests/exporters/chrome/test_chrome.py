"""Chrome JSON, read back by a JSON parser exactly, and by Perfetto's trace processor."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter, defaultdict
from dataclasses import asdict, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from ikp.core.abi import Kind, PayloadType
from ikp.core.args import arg_column
from ikp.core.trace import Trace
from ikp.errors import ExportError
from ikp.exporters.chrome import ChromeExporter, as_json
from ikp.plugins import EXPORTERS, load
from tests.exporters.perfetto.examples import START, launch, nothing, warp, warps
from tests.strategies import traces
from tests.trace_processor import columns, open_trace
from tests.trace_processor.found import check_import

pytestmark = pytest.mark.any_pins

shared_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
Row = tuple[Any, ...]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trace.json"


def written(trace: Trace, path: Path) -> dict[str, Any]:
    ChromeExporter().write(trace, path, force=True)
    content = path.read_bytes()
    text = gzip.decompress(content) if path.suffix == ".gz" else content
    parsed: dict[str, Any] = json.loads(text, parse_float=Decimal)
    return parsed


def wanted_rows(trace: Trace) -> Counter[Row]:
    """Return each event as (launch, SM, warp, name, start, duration, arguments)."""
    events, slots = trace.events, trace.slots
    rows: Counter[Row] = Counter()
    for i, slot in enumerate(events.slot.tolist()):
        number = int(slots.launch[slot])
        start, end, ticks = (
            int(getattr(events, name)[i]) for name in ("start_ns", "end_ns", "ticks")
        )
        is_range = events.kind[i] == Kind.RANGE
        cycles = trace.launches[number].clock.kind == "cycles"
        args: dict[str, Any] = {"block": int(slots.block[slot])}
        if (is_range and cycles) or ticks != end - start:
            args["cycles" if cycles else "ticks"] = ticks
        if events.payload_type[i] != PayloadType.NONE:
            value = float(trace.payload[i])
            is_float = events.payload_type[i] == PayloadType.F32
            args["payload"] = value if is_float else int(value)
        for name, column in trace.args.items():
            if column.given[i]:
                args[name] = column.value(i)
        name = trace.regions[events.region[i]].name
        where = (number, int(slots.sm[slot]), int(slots.warp[slot]))
        rows[*where, name, start, end - start if is_range else None, frozen(args)] += 1
    return rows


def frozen(args: dict[str, Any]) -> Row:
    """Return arguments in a form that compares: JSON has no NaN, so it stands there as a text."""
    plain = {}
    for name, value in args.items():
        finite = not isinstance(value, float) or np.isfinite(value)
        plain[name] = (type(value).__name__ if finite else "str", value if finite else str(value))
    return tuple(sorted(plain.items()))


def origin(trace: Trace) -> int:
    times = [*trace.slots.start_ns.tolist(), *trace.events.start_ns.tolist()]
    return min(times, default=0)


def nanoseconds(microseconds: Decimal) -> int:
    whole = Decimal(microseconds) * 1000
    assert whole == int(whole)
    return int(whole)


def json_rows(parsed: dict[str, Any], trace: Trace) -> Counter[Row]:
    names = {(e["pid"], e.get("tid"), e["name"]): e.get("args") for e in parsed["traceEvents"]}
    start = origin(trace)
    rows: Counter[Row] = Counter()
    for event in parsed["traceEvents"]:
        if event["ph"] not in "Xi":
            continue
        thread = names[event["pid"], event["tid"], "thread_name"]["name"]
        match = re.match(r"lane \d+ · warp (\d+)", thread)
        if match is None:
            continue
        process = names[event["pid"], None, "process_name"]["name"]
        number, sm = places(trace)[process]
        args = {k: float(v) if isinstance(v, Decimal) else v for k, v in event["args"].items()}
        duration = nanoseconds(event["dur"]) if event["ph"] == "X" else None
        when = (nanoseconds(event["ts"]) + start, duration)
        rows[number, sm, int(match[1]), event["name"], *when, frozen(args)] += 1
    return rows


def places(trace: Trace) -> dict[str, tuple[int, int]]:
    """Return launch and SM by the name of the process."""
    seen: Counter[tuple[int | None, str]] = Counter()
    found = {}
    for number, one in enumerate(trace.launches):
        who = (one.rank, one.label)
        rank = "" if one.rank is None else f"rank {one.rank} · "
        for sm in np.unique(trace.slots.sm[trace.slots.launch == number]).tolist():
            found[f"{rank}{one.label} #{seen[who]} · {one.device} · SM {sm}"] = (number, sm)
        seen[who] += 1
    return found


def check_json(trace: Trace, path: Path) -> dict[str, Any]:
    parsed = written(trace, path)
    assert json_rows(parsed, trace) == wanted_rows(trace)
    about = parsed["otherData"]
    assert about["start_unix_ns"] == origin(trace)
    assert about["provenance"] == trace.provenance
    assert about["regions"] == [asdict(region) for region in trace.regions]
    wanted = [{**asdict(one), "dropped": one.dropped} for one in trace.launches]
    assert json.loads(json.dumps(about["launches"], default=float)) == json.loads(
        json.dumps(wanted)
    )
    return parsed


def check_viewer(trace: Trace, path: Path) -> None:
    """Fail unless the trace processor finds each event, on a thread on which ranges nest."""
    sql = """select s.id, s.ts, s.dur, coalesce(s.name, '') name, t.tid, t.name thread,
             p.name process, coalesce(s.arg_set_id, -1) args
             from slice s join thread_track tt on s.track_id = tt.id join thread t using (utid)
             join process p using (upid) where thread glob '* warp *'"""
    with open_trace(path) as processor:
        check_import(processor)
        slices = columns(processor, sql)
        facts = arguments(processor)
        resident = columns(processor, "select count(*) n from counter")["n"][0]
    start = origin(trace)
    where = places(trace)
    names = as_shown([*where, *(region.name for region in trace.regions)])
    found: Counter[Row] = Counter()
    lanes = defaultdict(list)
    for ts, dur, name, tid, thread, process, args in zip(
        *(slices[c].tolist() for c in ("ts", "dur", "name", "tid", "thread", "process", "args")),
        strict=True,
    ):
        match = re.match(r"lane \d+ · warp (\d+)", thread)
        assert match, thread
        what = (*where[names[process]], int(match[1]), names[name], ts + start, dur)
        found[*what, rounded(frozen(facts.get(args, {})))] += 1
        lanes[tid].append((ts, ts + dur))
    assert found == as_slices(trace)
    assert all(nests(spans) for spans in lanes.values())
    assert bool(resident) == bool(len(trace.slots) and has_duration(trace))


def as_slices(trace: Trace) -> Counter[Row]:
    """Return the events as the viewer has them: an instant is a range of no duration."""
    summed: Counter[Row] = Counter()
    for row, count in wanted_rows(trace).items():
        *where, name, start, duration, args = row
        summed[*where, name, start, duration or 0, rounded(args)] += count
    return summed


def rounded(args: Row) -> Row:
    """Return arguments with floats as the viewer reads them: their last bit may be another."""
    return tuple(
        (name, (kind, f"{value:.9g}" if kind == "float" else value)) for name, (kind, value) in args
    )


def as_shown(names: list[str]) -> dict[str, str]:
    """Return names by what the viewer shows: as they are, or with escapes where JSON has them."""
    escaped = {as_json(name).decode()[1:-1].replace('\\"', '"'): name for name in names}
    return {**escaped, **{name or "[No name]": name for name in names}}


def has_duration(trace: Trace) -> bool:
    return bool(np.any(trace.slots.end_ns > trace.slots.start_ns))


def arguments(processor: Any) -> dict[int, dict[str, Any]]:
    found = columns(
        processor,
        "select arg_set_id s, key, int_value i, real_value r, string_value t, value_type v"
        " from args where key glob 'args.*'",
    )
    facts: dict[int, dict[str, Any]] = defaultdict(dict)
    for s, key, i, r, t, kind in zip(
        *(found[c].tolist() for c in ["s", "key", "i", "r", "t", "v"]), strict=True
    ):
        value = {"int": i, "uint": i, "real": r, "string": t, "bool": bool(i)}[kind]
        facts[s][key.removeprefix("args.")] = value
    return facts


def nests(spans: list[tuple[int, int]]) -> bool:
    open_ends: list[int] = []
    for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
        while open_ends and open_ends[-1] <= start:
            open_ends.pop()
        if open_ends and end > open_ends[-1]:
            return False
        open_ends.append(end)
    return True


def test_it_is_found_by_its_entry_point_and_suffixes(tmp_path: Path) -> None:
    assert isinstance(load(EXPORTERS, "chrome"), ChromeExporter)
    for name in ("t.json", "t.json.gz", "t.chrome_trace"):
        warp((0, 1)).save(tmp_path / name)
    assert (
        gzip.decompress((tmp_path / "t.json.gz").read_bytes()) == (tmp_path / "t.json").read_bytes()
    )


@shared_folder
@given(trace=traces())
def test_a_json_parser_reads_exactly_what_was_recorded(trace: Trace, path: Path) -> None:
    check_json(trace, path)


@pytest.mark.tp
@settings(shared_folder, max_examples=settings.default.max_examples // 2)
@given(trace=traces())
def test_the_trace_processor_finds_every_event(trace: Trace, path: Path) -> None:
    ChromeExporter().write(trace, path, force=True)
    check_viewer(trace, path)


@pytest.mark.tp
def test_every_nanosecond_survives_the_viewers_floats(path: Path) -> None:
    """It multiplies microseconds by 1000 in floats, over an hour here."""
    random = np.random.default_rng(1)
    starts = np.sort(random.integers(0, 3600 * 10**9, 5_000))
    trace = warp(*((start, start + 1 + i % 7) for i, start in enumerate(starts.tolist())))
    check_json(trace, path)
    check_viewer(trace, path)


@pytest.mark.tp
def test_overlapping_ranges_get_threads_of_their_own(path: Path) -> None:
    trace = warp((0, 4), (2, 6), (3, 8), (8, 9))
    parsed = check_json(trace, path)
    check_viewer(trace, path)
    named = [e["args"]["name"] for e in parsed["traceEvents"] if e["name"] == "thread_name"]
    assert named[-2:] == ["lane 0 · warp 0 · overlap 1", "lane 0 · warp 0 · overlap 2"]


@pytest.mark.tp
def test_a_gz_file_loads_too(tmp_path: Path) -> None:
    trace = warps([[(1, 4), 5], [(2, 3)]])
    ChromeExporter().write(trace, tmp_path / "t.json.gz")
    check_viewer(trace, tmp_path / "t.json.gz")


@pytest.mark.tp
def test_arguments_of_every_type_are_shown(path: Path) -> None:
    values = {
        "iteration": [3, None, -(1 << 63)],
        "cost": [0.1, 1e300, None],
        "tail": [True, False, None],
        'say "x"': ["測量", "", None],
    }
    trace = warp((0, 1), 2, (3, 9))
    args = {name: arg_column(name, column, 3) for name, column in values.items()}
    trace = replace(trace, args=args)
    check_json(trace, path)
    with open_trace(path) as processor:
        check_import(processor)
        facts = list(arguments(processor).values())
    first = {"block": 0, "cycles": 2, "iteration": 3, "cost": 0.1, "tail": True, 'say "x"': "測量"}
    assert first in facts
    assert {"block": 0, "cost": 1e300, "tail": False, 'say "x"': ""} in facts
    assert {"block": 0, "cycles": 12, "iteration": -(1 << 63)} in facts


def test_payloads_that_json_has_no_number_for(path: Path) -> None:
    trace = warp(*((i, i + 1) for i in range(4)))
    bits = np.array([0x7F800000, 0xFF800000, 0x7FC00000, 0x3DCCCCCD], np.uint32)
    types = np.full(4, PayloadType.F32, np.uint8)
    trace = replace(trace, events=replace(trace.events, payload=bits, payload_type=types))
    parsed = check_json(trace, path)
    found = [e["args"]["payload"] for e in parsed["traceEvents"] if "payload" in e.get("args", {})]
    assert [str(value) for value in found] == ["inf", "-inf", "nan", "0.10000000149011612"]


def test_what_was_lost_stands_in_the_trace(path: Path) -> None:
    parsed = check_json(warp((0, 5), attempted=1235, kept=1), path)
    assert "1234 records dropped" in [e["name"] for e in parsed["traceEvents"]]
    assert parsed["otherData"]["launches"][0]["dropped"] == 1234


@pytest.mark.tp
@pytest.mark.parametrize("launches", [(), (launch(),)])
def test_an_empty_trace_loads(launches: tuple[Any, ...], path: Path) -> None:
    trace = nothing(launches=launches)
    assert written(trace, path)["otherData"]["provenance"] == {}
    with open_trace(path) as processor:
        assert columns(processor, "select count(*) n from slice")["n"][0] == len(launches)


def test_a_trace_that_contradicts_itself_is_refused_and_the_old_file_stays(path: Path) -> None:
    path.write_text("mine")
    trace = warp((0, 1))
    broken = replace(trace, events=replace(trace.events, end_ns=trace.events.start_ns - START))
    with pytest.raises(ExportError, match="contradicts itself"):
        ChromeExporter().write(broken, path, force=True)
    assert path.read_text() == "mine"


@pytest.mark.parametrize("value", [0.00043783715227618814, -0.0012345678901234567, 1.5, 1e-7, 3e20])
@pytest.mark.tp
def test_numbers_with_many_decimals_are_read_right(value: float, path: Path) -> None:
    trace = warp((0, 10))
    trace = replace(trace, args={"x": arg_column("x", np.array([value]), 1)})
    assert written(trace, path)["traceEvents"]
    with open_trace(path) as processor:
        rows = columns(processor, "select extract_arg(arg_set_id, 'args.x') x from slice")
    assert value in [pytest.approx(x, rel=1e-12) for x in rows["x"].tolist() if x is not None]
