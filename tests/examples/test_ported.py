"""The examples ported from other profilers, in the interpreter, each with every record it makes."""

from __future__ import annotations

import json
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest

import ikp

pytestmark = pytest.mark.interp

ADD = dict.fromkeys(["kernel", "load_and_add", "load_x", "load_y"], 4)


def test_the_tilewise_copy_of_triton_distributed(tmp_path: Path) -> None:
    path = tmp_path / "copy.pftrace"
    import_module("examples.from_triton_distributed").main(path)
    frame = ikp.load(path).to_pandas()
    assert Counter(frame.region) == {"perfect": 25, "non-perfect": 1}
    assert sorted(frame.payload) == list(range(26))
    assert frame[frame.region == "non-perfect"].payload.tolist() == [25]
    assert Counter(frame.block) == {0: 7, 1: 7, 2: 6, 3: 6}


def test_the_quick_start_of_sm_profiler(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "trace.json"
    import_module("examples.from_sm_profiler").main(path)
    parsed = json.loads(path.read_text())
    names = Counter(event["name"] for event in parsed["traceEvents"] if event["ph"] in "Xi")
    assert {name: names[name] for name in ("memory", "compute", "sync")} == {
        "memory": 16 * 4,
        "compute": 16 * 3,
        "sync": 16,
    }
    launches = [launch["label"] for launch in parsed["otherData"]["launches"]]
    assert launches == ["my_kernel"], "the launch with recording off is none of them"
    assert "compute" in capsys.readouterr().out


def test_the_tutorial_of_proton(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "proton.pftrace"
    import_module("examples.from_proton").main([str(path)])
    trace = ikp.load(path)
    assert [launch.label for launch in trace.launches] == ["add", "plain_add_kernel"]
    frame = trace.to_pandas()
    assert Counter(frame[frame.label == "add"].region) == ADD
    kinds = Counter(name.split(" @")[0] for name in frame[frame.label != "add"].region)
    assert kinds == {"plain_add_kernel": 4, "tl.load": 8, "tl.store": 4}
    assert "the matmul needs a GPU of compute capability 9.0" in capsys.readouterr().out


def test_proton_s_higher_accuracy_needs_a_gpu_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "proton.pftrace"
    import_module("examples.from_proton").main(["--increase-accuracy", str(path)])
    assert "left out: --increase-accuracy" in capsys.readouterr().out
    assert "overhead_deducted" not in ikp.load(path).provenance


def test_the_options_of_proton_s_tutorial(tmp_path: Path) -> None:
    path = tmp_path / "proton.hatchet"
    options = ["--op-measure", "--warp-sampling", "--warp-ids", "0,2"]
    import_module("examples.from_proton").main([*options, str(path)])
    tree = json.loads(path.read_text())[0]
    (add,) = [node for node in tree["children"] if node["frame"]["name"] == "add"]
    assert sorted(node["frame"]["name"] for node in add["children"]) == sorted(ADD)
    assert all(node["metrics"]["time (ns)"] > 0 for node in add["children"])
