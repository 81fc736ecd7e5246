"""The fuzzer of operators: what a process does to itself becomes the outcome that it is."""

from __future__ import annotations

import json
import os
import shutil
import time
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from tests.tools import fuzzed
from tools.fuzz_operators import cuda_samples, recorder
from tools.fuzz_operators.__main__ import SUITES, chosen, main, parsed
from tools.fuzz_operators.driving import Driver, Orders
from tools.fuzz_operators.outputs import difference, kept
from tools.fuzz_operators.pool import DONE, NOT_FINISHED, TIME_LIMIT, Pool
from tools.fuzz_operators.recorder import DETAILS
from tools.fuzz_operators.summary import read, summary

pytestmark = pytest.mark.any_pins


def run(name: str, tmp_path: Path, **orders: object) -> dict[str, object]:
    """Run one operator; return its line of the results file."""
    suite, out = fuzzed.Operators([name], tmp_path / "log"), tmp_path / "out.jsonl"
    made = {"details": DETAILS, "limit_s": 20.0, "count": False, **orders}
    Driver(suite, lambda: fuzzed.Recorder(name), Orders(**made)).run([name], out)
    (found,) = read([out])
    return found


def outcomes(found: dict[str, object]) -> dict[tuple[str, str], str]:
    return {(each["detail"], each["case"]): each["outcome"] for each in found["results"]}


def test_equal_at_each_detail(tmp_path: Path) -> None:
    found = run("equal", tmp_path)
    assert set(outcomes(found).values()) == {"equal"}
    assert len(outcomes(found)) == 2 * (1 + len(DETAILS))
    assert found["processes"] == 1
    assert set(found["traces"]) == set(DETAILS)


@pytest.mark.parametrize("name", ["DIFFERS", "ERROR", "FAULT", "CRASH", "HANG"])
def test_a_defect_is_found_where_it_is_and_the_rest_runs(name: str, tmp_path: Path) -> None:
    found = run(name, tmp_path, limit_s=2.0 if name == "HANG" else 20.0)
    made = outcomes(found)
    assert made.pop(("waits", "one")) == name
    assert set(made.values()) == {"equal"}
    assert len(made) == 2 * (1 + len(DETAILS)) - 1
    assert found["processes"] == (1 if name in ("DIFFERS", "ERROR") else 2)
    if name in ("CRASH", "HANG"):  # it says where it was
        (what,) = (each["what"] for each in found["results"] if each["outcome"] == name)
        assert "in bad" in what


def test_what_a_process_did_not_come_to_is_said(tmp_path: Path) -> None:
    made = outcomes(run("CRASH", tmp_path, restarts=0))
    assert made["waits", "one"] == "CRASH"
    assert made["waits", "two"] == made["ops", "one"] == "not run"
    assert made["loops", "two"] == "equal"


def test_after_a_crash_nothing_that_is_known_is_recorded_again(tmp_path: Path) -> None:
    run("CRASH", tmp_path)
    lines = (tmp_path / "log").read_text().splitlines()
    assert lines.count("CRASH one loops") == lines.count("CRASH one waits") == 1


@pytest.mark.parametrize(
    ("name", "outcome"), [("refused", "refused"), ("none", "no kernel recorded")]
)
def test_what_is_not_recorded_is_not_equal(name: str, outcome: str, tmp_path: Path) -> None:
    made = outcomes(run(name, tmp_path))
    assert {made[detail, "one"] for detail in DETAILS} == {outcome}


def test_plain_runs_are_what_records_are_held_against(tmp_path: Path) -> None:
    made = outcomes(run("varies", tmp_path))
    assert set(made.values()) == {"differs as plain runs do"}
    (tmp_path / "out.jsonl").unlink()
    assert set(outcomes(run("plain fails", tmp_path)).values()) == {"plain run fails"}


def test_a_results_file_is_gone_on_with(tmp_path: Path) -> None:
    names, out = ["a", "b", "c"], tmp_path / "out.jsonl"
    suite = fuzzed.Operators(names, tmp_path / "log")
    driver = partial(Driver, suite, fuzzed.Recorder)
    driver(Orders(DETAILS, count=False)).run(names[:2], out)
    with out.open("a") as file:
        file.write('{"operator": "c", "resul')  # cut off by a kill
    before = (tmp_path / "log").read_text()
    assert "c one" not in before
    driver(Orders(DETAILS, count=False)).run(names, out)
    added = (tmp_path / "log").read_text()[len(before) :]
    assert "c one ops" in added
    assert "a one" not in added
    assert [each["operator"] for each in read([out])] == names


def test_no_time_is_left(tmp_path: Path) -> None:
    suite, out = fuzzed.Operators(["HANG", "a"], tmp_path / "log"), tmp_path / "out.jsonl"
    orders = Orders(DETAILS, jobs=1, limit_s=600, minutes=1 / 60, count=False)
    began = time.monotonic()
    Driver(suite, lambda: fuzzed.Recorder("HANG"), orders).run(["HANG", "a"], out)
    assert time.monotonic() - began < 10
    assert read([out]) == []


def test_a_process_that_is_killed_leaves_no_child(tmp_path: Path) -> None:
    def work(send: object) -> None:
        pid = os.fork()
        if not pid:
            time.sleep(600)
        send({"pid": pid})
        time.sleep(600)

    pool = Pool(1, limit_s=1)
    pool.submit("x", work)
    (ended,) = pool.results()
    assert ended.end == TIME_LIMIT
    with pytest.raises(ProcessLookupError):
        gone(ended.events[0]["pid"])


def gone(pid: int) -> None:
    """Raise as soon as a process is not there any more, or only as a zombie."""
    for _ in range(100):
        os.kill(pid, 0)
        if "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text():
            raise ProcessLookupError
        time.sleep(0.02)


def test_a_pool_runs_so_many_at_a_time() -> None:
    pool = Pool(3, limit_s=30)
    for number in range(3):
        pool.submit(number, lambda send: (send({"at": time.monotonic()}), time.sleep(0.5)))
    ended = list(pool.results())
    assert {each.end for each in ended} == {DONE}
    begun = [each.events[0]["at"] for each in ended]
    assert max(begun) - min(begun) < 0.5


def test_large_events_come_whole() -> None:
    pool = Pool(1, limit_s=30)
    pool.submit("x", lambda send: send({"text": "x" * 3_000_000}))
    (ended,) = pool.results()
    assert ended.end == DONE
    assert len(ended.events[0]["text"]) == 3_000_000


def test_an_exception_is_in_stderr() -> None:
    pool = Pool(1, limit_s=30)
    pool.submit("x", lambda send: {}["missing"])
    (ended,) = pool.results()
    assert ended.end == "exit code 1"
    assert "KeyError: 'missing'" in ended.stderr
    assert ended.end != NOT_FINISHED


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (np.float32([0.0]), np.float32([-0.0])),
        (np.int64([1, 2]), np.int64([1, 3])),
        (np.zeros(3, np.int8), np.zeros(4, np.int8)),
        (np.zeros(3, np.int8), np.zeros(3, np.uint8)),
        (np.array([1.0, np.inf]), np.array([1.0, 2.0])),
    ],
)
def test_bits_are_compared(one: object, other: object) -> None:
    assert difference(kept([one]), kept([one])) == ""
    assert difference(kept([one]), kept([other])) != ""


def test_nans_of_the_same_bits_are_equal_and_others_are_not() -> None:
    one = np.uint32([0x7FC00000]).view(np.float32)
    other = np.uint32([0x7FC00001]).view(np.float32)
    assert difference(kept([one]), kept([one.copy()])) == ""
    assert "1 of 4 bytes differ" in difference(kept([one]), kept([other]))


def test_an_output_that_is_missing_is_a_difference() -> None:
    assert difference(kept([np.zeros(1), "a"]), kept([np.zeros(1)])) == "2 outputs and 1"
    assert "output 0" in difference(kept(["a"]), kept(["b"]))


def test_torch_tensors_are_compared_by_their_bits() -> None:
    torch = pytest.importorskip("torch")
    one = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3)
    other = one.clone()
    other[1, 1] = -4.0
    assert difference(kept([one.T]), kept([one.T.contiguous()])) == ""
    assert "by 1.6 of the largest value" in difference(kept([one]), kept([other]))
    assert len(kept([one.to_sparse()])) == 2
    assert difference(kept([one.to_sparse()]), kept([other.to_sparse()])) != ""


def test_slices_hold_each_operator_once() -> None:
    names = [f"op{number}" for number in range(20)]
    slices = [chosen(names, parsed(["--slice", f"{number}/3"])) for number in (1, 2, 3)]
    assert sorted(chain(*slices)) == sorted(names)
    assert chosen(names, parsed(["--only", "op1$"])) == ["op1"]


@pytest.mark.parametrize(
    "words", [["--slice", "0/3"], ["--slice", "4/3"], ["--slice", "x"], ["--details", "loop"]]
)
def test_what_can_not_be_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parsed(words)
    assert "error: --" in capsys.readouterr().err


def line(**given: object) -> dict[str, object]:
    kernels = {"libtorch.a": {"recorded": 97}, "libcufft.b": {"could not be marked: odd": 3}}
    result = {"detail": "loops", "case": "one", "outcome": "equal", "what": "", "kernels": kernels}
    base = {"operator": "x", "seconds": 1.0, "processes": 1, "counted": {"a": 97, "b": 3}}
    return {**base, "traces": {}, "results": [result], **given}


def test_the_summary_counts_refusals_by_library_and_reason() -> None:
    text = summary([line()])
    assert "all                97        3                0    3.00%" in text
    assert "libcufft            0        3                0  100.00%" in text
    assert "3 launches of 1 names at loops: could not be marked: odd" in text
    assert "0 launches of 0 names were never seen by ikp" in text
    assert "0 DEFECTS" in text


def test_launches_that_no_hook_saw_are_in_the_summary() -> None:
    text = summary([line(counted={"a": 97, "b": 3, "hidden": 5})])
    assert "5 launches of 1 names were never seen by ikp" in text
    assert "5 hidden" in text
    assert "of 1 it was not counted" in summary([line(counted=None)])


def test_a_defect_is_the_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = tmp_path / "good.jsonl", tmp_path / "bad.jsonl"
    good.write_text(json.dumps(line()) + "\n")
    fault = {"detail": "ops", "case": "float32 0", "outcome": "FAULT", "what": "illegal"}
    bad.write_text(json.dumps(line(operator="y", results=[fault])) + "\n")
    assert main(["--summary", str(good)]) == 0
    assert main(["--summary", str(good), str(bad)]) == 1
    assert "FAULT: y, float32 0, ops: illegal" in capsys.readouterr().out


def test_a_run_in_which_nothing_works_ends(tmp_path: Path) -> None:
    class Broken(fuzzed.Operators):
        def cases(self, name: str) -> object:
            raise RuntimeError("no GPU")

    names = [str(number) for number in range(20)]
    driver = Driver(Broken(names, tmp_path / "log"), fuzzed.Recorder, Orders(DETAILS, count=False))
    with pytest.raises(RuntimeError, match="none of the first 8 operators"):
        driver.run(names, tmp_path / "out.jsonl")
    assert len(read([tmp_path / "out.jsonl"])) == 8


def test_a_run_in_which_nothing_is_recorded_ends_with_the_reason(tmp_path: Path) -> None:
    def broken() -> fuzzed.Recorder:
        raise TypeError("an option that nobody knows")

    names = [str(number) for number in range(20)]
    orders = Orders(DETAILS, count=False, restarts=0)
    driver = Driver(fuzzed.Operators(names, tmp_path / "log"), broken, orders)
    with pytest.raises(RuntimeError, match=r"with records: (.|\n)*an option that nobody knows"):
        driver.run(names, tmp_path / "out.jsonl")


def test_the_recorder_has_the_options_of_ikp_run() -> None:
    made = recorder.options(["--sample", "3"])
    assert (made.kernel, made.launch, made.sample, made.explain) == ("*", ":", 3, False)


@pytest.mark.parametrize("suite", ["cupy", "jax", "cuda"])
def test_suites_list_their_programs(suite: str) -> None:
    names = SUITES[suite](parsed([])).names()
    assert len(names) == len(set(names)) >= 18


def test_each_sample_says_what_it_is_for_and_returns_what_fits() -> None:
    for source in cuda_samples.FOLDER.glob("*.cu"):
        text = source.read_text()
        assert "\nRUN {" in text, source
        assert '#include "sample.h"' in text, source
    assert cuda_samples.options(cuda_samples.FOLDER / "debug_build.cu") == ["-G"]
    assert cuda_samples.options(cuda_samples.FOLDER / "recursion.cu") == []


@pytest.mark.skipif(not shutil.which("nvcc"), reason="nvcc isn't installed")
def test_a_sample_is_built_and_a_bad_one_is_refused(tmp_path: Path) -> None:
    made = cuda_samples.built(cuda_samples.FOLDER / "constants.cu", "sm_90a", tmp_path)
    assert made.stat().st_size > 0
    bad = tmp_path / "bad.cu"
    bad.write_text("int run() { return missing; }")
    with pytest.raises(cuda_samples.SampleError, match="nvcc refuses bad"):
        cuda_samples.built(bad, "sm_90a", tmp_path)
