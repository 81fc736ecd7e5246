"""The line under ``ikp run``'s table: what was lost, and how much of the time recording took."""

import threading
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest

from ikp.core.decoding.decode import decode
from ikp.core.run_figures import REPLAYED, ReplayFigures, replays_text
from ikp.errors import FaultError
from ikp.running._ending import (
    _checked,
    _chosen_nothing,
    _recording,
    count_replays,
    report,
    report_of_child,
)
from ikp.running.recording import Recording
from ikp.unedited.plan import plan
from tests.exporters.perfetto.examples import CYCLES, warp


def options_of(path, **more):
    plain = {"blocks": None, "warps": None, "explain": True, "folder": "", "output": "text"}
    return SimpleNamespace(path=str(path), **plain | more)


def launcher_of_one():
    """Return a launcher that has recorded one launch of ``k``."""
    return SimpleNamespace(
        begin_anew=lambda: None,
        recorded=Counter(k=1),
        plain=Counter(),
        plan=plan(),
        aside=set(),
        session=None,
    )


@pytest.mark.parametrize(("bits", "cycles"), [(32, 94), (64, 109)])
def test_the_share_is_bounded_by_what_a_record_of_the_clock_can_take(bits, cycles):
    made = warp((100, 150), (200, 300), clock=replace(CYCLES, bits=bits))  # half a ns per cycle
    launches = tuple(replace(each, attempted=2, kept=2) for each in made.launches)
    text = _recording(replace(made, launches=launches))
    (slot,) = made.slots.end_ns - made.slots.start_ns
    assert text == (
        f"2 records, none dropped; writing them took at most about "
        f"{100 * 2 * cycles * 0.5 / slot:.1f} % of the warps' time ({cycles} cycles each)."
    )


def test_dropped_records_come_with_the_option_that_would_hold_them():
    made = warp((100, 150), clock=CYCLES)
    lost = tuple(
        replace(each, attempted=9, kept=1, needed_bytes=(3 << 20) + 1) for each in made.launches
    )
    assert "8 dropped: --buffer 4 would hold them" in _recording(replace(made, launches=lost))


def test_of_a_sample_it_is_told_and_what_all_warps_had_to_bear(tmp_path, capfd):
    made = warp((100, 200), clock=CYCLES)
    sampled = replace(made, others=made.slots)
    shares = [_recording(each).split("about ")[1].split(" %")[0] for each in (made, sampled)]
    assert float(shares[0]) == pytest.approx(2 * float(shares[1]), abs=0.2)
    options = options_of(tmp_path / "x.pftrace", explain=False)
    for each, wanted in ((made, False), (sampled, True)):
        report(SimpleNamespace(facts={}), launcher_of_one(), options, each, wrote=False)
        assert ("--sample 1 records ranges in all" in capfd.readouterr().err) == wanted


@pytest.mark.parametrize("wrote", [True, False])
def test_a_trace_that_is_there_is_called_new_only_if_it_is(wrote, tmp_path, capfd):
    path = tmp_path / "x.pftrace"
    path.touch()
    made = warp((100, 150), clock=CYCLES)
    report(SimpleNamespace(facts={}), launcher_of_one(), options_of(path), made, wrote=wrote)
    said = capfd.readouterr().err
    assert (f"ikp: wrote {path} (0 KiB).\n" in said) == wrote
    assert (f"ikp: nothing was written: {path} is of an earlier run." in said) != wrote


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (FaultError("a kernel failed on the GPU."), "ikp: a kernel failed on the GPU.\n"),
        (RuntimeError("no memory"), "ikp: the trace is lost: no memory\n"),
        (MemoryError(), "ikp: the trace is lost: MemoryError\n"),
    ],
)
def test_a_gpu_that_has_failed_is_told_and_nothing_is_raised(error, wanted, tmp_path, capfd):
    def ended(*_):
        raise error

    none = decode([], {}, {})
    session = type("Session", (), {"__exit__": ended, "trace": none, "facts": {}})()
    options = options_of(tmp_path / "x.pftrace")
    Recording(options, launcher_of_one(), session=session, path=options.path).end()
    said = capfd.readouterr().err
    assert wanted in said and "k: 1 of 1 launches recorded" in said


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (ModuleNotFoundError("No module named 'ikp.x'"), "ModuleNotFoundError: No module named"),
        (OSError(24, "Too many open files"), "OSError: [Errno 24] Too many open files"),
        (MemoryError(), "MemoryError\n"),
    ],
)
def test_what_a_program_has_taken_from_itself_ends_in_a_line(
    error, wanted, tmp_path, capfd, monkeypatch
):
    """As files by ``chroot``, descriptors or memory by limits: ikp has none of them either."""

    def fails(*_, **__):
        raise error

    monkeypatch.setattr(Recording, "_write", fails)
    options = options_of(tmp_path / "x.pftrace")
    Recording(options, launcher_of_one(), path=options.path).end()
    assert f"ikp: the trace is lost: {wanted}" in capfd.readouterr().err


def test_blocks_and_warps_that_no_launch_has_are_told_what_there_is():
    made = warp((100, 150), clock=CYCLES)
    wide = replace(made.launches[0], label="wide", grid=(3, 1, 1), warps_per_block=4)
    one = replace(wide, label="one", grid=(1, 1, 1), warps_per_block=1)
    made = replace(made, launches=(one, wide, one))
    options = options_of("x.pftrace", blocks="1:2", warps="3")
    assert _chosen_nothing(made, options) == [
        "one: --blocks 1:2 names no block: its grid has 1 block, counted from 0.",
        "one: --warps 3 names no warp: its blocks have 1 warp, counted from 0.",
    ]


def test_of_many_specialisations_some_verdicts_are_told():
    assert _checked([]) == []
    assert _checked(["equal"]) == ["  check: equal."]
    many = _checked([f"{n} buffers" for n in range(6)])
    assert many[-2:] == ["  check: 3 buffers.", "  check: and 2 more; the trace has them."]


@pytest.mark.parametrize(
    ("captured", "kept", "made", "recorded", "left"),
    [
        (3, 24, 300, 26, 276),  # 3 nodes, 100 replays of which 8 are kept, beside 2 eager launches
        (3, 0, 0, 2, 0),  # never replayed
        (3, 0, 30, 5, 27),  # no room: the last replay is left
        (0, 24, 24, 29, 0),  # captured before
    ],
)
def test_replays_count_as_launches_and_captures_do_not(captured, kept, made, recorded, left):
    launcher = SimpleNamespace(recorded=Counter(k=2 + (captured or 3)), plain=Counter())
    figures = {"k": ReplayFigures(captured, kept, made)}
    count_replays(launcher, {REPLAYED: replays_text(figures)})
    assert launcher.recorded == Counter(k=recorded)
    assert launcher.plain.total() == left
    assert all("were not kept (--replays)" in why for _, why in launcher.plain)


def test_a_trace_without_graphs_changes_no_count():
    launcher = SimpleNamespace(recorded=Counter(k=2), plain=Counter())
    for text in ("", "[]", '{"k": 3}'):
        count_replays(launcher, {REPLAYED: text})
    assert launcher.recorded == Counter(k=2) and not launcher.plain


def test_a_child_says_which_libraries_run_plain():
    launcher = SimpleNamespace(recorded=Counter(k=1), plain=Counter(), aside={"libb.so", "liba.so"})
    lines = report_of_child(launcher, "/w/x.pftrace", wrote=True)
    assert lines == [
        "1 of 1 launches recorded, of 1 kernel. Wrote /w/x.pftrace",
        "kernels of liba.so, libb.so run plain: choose some with --kernel.",
    ]


def test_at_c_s_exit_a_thread_with_variables_of_its_own_ends_the_recording(monkeypatch):
    """Those of the program's thread are being destroyed."""
    ended, stopped = [], []
    monkeypatch.setattr(Recording, "end", lambda _: ended.append(threading.get_ident()))
    monkeypatch.setattr("ikp.session.service.end_services", lambda _: stopped.extend(ended))
    Recording.exits(Recording.__new__(Recording))
    assert len(ended) == 1 and ended != [threading.get_ident()]
    assert stopped == ended, "ikp's threads end behind it"
