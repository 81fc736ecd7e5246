import json
import subprocess
import sys
import types

import pytest
from click.testing import CliRunner

from ikp.cli import _doctor as doctor
from ikp.cli import _gpu as gpu
from ikp.cli._plugins import Check
from ikp.cli.main import cli
from ikp.version import __version__


@pytest.fixture
def healthy(monkeypatch):
    """Every plugin loads and there is no GPU, whatever this machine has."""
    monkeypatch.setattr(doctor, "check", lambda _: Check(True))
    monkeypatch.setattr(gpu, "find", gpu.GpusFound)
    for name in doctor.VARIABLES:
        monkeypatch.delenv(name, raising=False)


def invoke(*words):
    return CliRunner().invoke(cli, ["doctor", *words])


def test_text_names_what_is_installed_and_what_loads(healthy):
    result = invoke()
    assert result.exit_code == 0
    rows = dict(line.split(maxsplit=1) for line in result.stdout.splitlines())
    assert rows["ikp"] == __version__
    assert rows["Python"].startswith(f"{sys.version_info.major}.{sys.version_info.minor}")
    words = [line.split() for line in result.stdout.splitlines()]
    assert ["exporter", "perfetto", "loads", "(from", "ikp", f"{__version__})"] in words
    assert rows["GPU"] == gpu.NONE
    assert rows["TRITON_INTERPRET"].startswith("not set")


def test_json_holds_the_same(healthy, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    report = json.loads(invoke("--format", "json").stdout)
    assert report["ikp"] == __version__
    assert report["packages"]["numpy"]
    assert report["environment"]["TRITON_INTERPRET"] == "1"
    loaded = {plugin["name"]: plugin["loads"] for plugin in report["plugins"]}
    assert loaded["perfetto"] is True
    assert report["problems"] == []


def test_tools_and_the_cache_are_looked_for(healthy, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CC", sys.executable)
    found = json.loads(invoke("--format", "json").stdout)
    assert found["cache"] == {"folder": str(tmp_path / "ikp"), "writable": True}
    assert found["tools"]["C compiler"] == sys.executable
    monkeypatch.setattr("ikp.inspection.tools_found.TOOLS", ("nvdisasm-of-nowhere",))
    monkeypatch.setenv("CC", "no-such-compiler")
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    words = [line.split() for line in invoke().stdout.splitlines()]
    assert ["nvdisasm-of-nowhere", "not", "found"] in words
    assert ["C", "compiler", "not", "found"] in words
    (cache,) = (line for line in words if line[0] == "cache")
    assert cache[2:5] == ["(can't", "be", "written:"]


def test_absent_is_told_and_is_no_fault(healthy, monkeypatch):
    lacks = Check(False, absent=True, error="no triton. Do: pip install 'ikp[triton]'")
    monkeypatch.setattr(doctor, "check", lambda _: lacks)
    result = invoke()
    assert result.exit_code == 0
    assert "absent: no triton. Do: pip install 'ikp[triton]'" in result.stdout


def test_broken_is_a_fault(healthy, monkeypatch):
    monkeypatch.setattr(doctor, "check", lambda _: Check(False, error="SystemError: boom"))
    result = invoke()
    assert result.exit_code == 1
    assert "broken: exporter perfetto: SystemError: boom" in result.stderr


def test_a_broken_torch_is_a_fault(healthy, monkeypatch):
    monkeypatch.setattr(
        gpu, "find", lambda: gpu.GpusFound(problems=("torch: OSError: no libcudart",))
    )
    result = invoke()
    assert (result.exit_code, "torch: OSError: no libcudart" in result.stderr) == (1, True)


def test_no_plugin_at_all_is_a_fault(healthy, monkeypatch):
    monkeypatch.setattr(doctor, "registered", list)
    assert invoke().exit_code == 1


def test_the_next_command_depends_on_what_is_missing(healthy, monkeypatch):
    monkeypatch.setattr(doctor, "_version", lambda _: "1")
    assert "next: ikp demo" in invoke().stderr
    monkeypatch.setattr(doctor, "_version", lambda _: None)
    assert "next: pip install 'ikp[triton]'" in invoke().stderr
    assert "next: ikp demo --recorded" in invoke().stderr


def test_the_real_thing_runs_in_a_process_of_its_own():
    command = [sys.executable, "-m", "ikp.cli.main", "doctor", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    report = json.loads(done.stdout)
    assert done.returncode == bool(report["problems"])


def fake_torch(monkeypatch, names):
    cuda = types.SimpleNamespace(
        is_available=lambda: bool(names),
        device_count=lambda: len(names),
        get_device_name=names.__getitem__,
    )
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda, __spec__=object()))


def fake_smi(monkeypatch, tmp_path, text):
    script = tmp_path / "nvidia-smi"
    script.write_text(f"#!/bin/sh\n{text}\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))


def test_gpus_come_from_torch_and_the_driver_from_nvidia_smi(monkeypatch, tmp_path):
    fake_torch(monkeypatch, ["NVIDIA H200", "NVIDIA H200"])
    fake_smi(monkeypatch, tmp_path, "echo 'NVIDIA H200, 580.1'")
    assert gpu.find().lines() == ["NVIDIA H200 (driver 580.1)"] * 2


def test_a_gpu_that_torch_cannot_use_is_noted(monkeypatch, tmp_path):
    fake_torch(monkeypatch, [])
    fake_smi(monkeypatch, tmp_path, "echo 'NVIDIA H200, 580.1'")
    found = gpu.find()
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert found.lines()[0] == gpu.NONE
    assert "nvidia-smi lists NVIDIA H200, but torch can't use it" in found.lines()[1]
    assert found.problems == ()


def test_without_torch_nvidia_smi_is_asked(monkeypatch, tmp_path):
    monkeypatch.setattr(gpu, "find_spec", lambda _: None)
    fake_smi(monkeypatch, tmp_path, "echo 'NVIDIA H200, 580.1'")
    assert gpu.find().lines() == ["NVIDIA H200 (driver 580.1)"]


@pytest.mark.parametrize("text", ["exit 9", "echo"])
def test_an_nvidia_smi_that_finds_nothing_is_no_gpu(monkeypatch, tmp_path, text):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(gpu, "find_spec", lambda _: None)
    fake_smi(monkeypatch, tmp_path, text)
    assert gpu.find().lines() == [gpu.NONE]


def test_a_torch_that_cannot_be_used_is_a_problem(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))

    def fail():
        raise OSError("no libcudart")

    broken = types.SimpleNamespace(cuda=types.SimpleNamespace(is_available=fail), __spec__=object())
    monkeypatch.setitem(sys.modules, "torch", broken)
    assert gpu.find().problems == ("torch: OSError: no libcudart",)


KERNEL = """
import triton, triton.language as tl
@triton.jit
def one(x):
    tl.device_print("it ran", x)
one[(1,)](7)
print("over")
"""
"""Without torch, which takes longer to import than all else."""


@pytest.mark.parametrize("interpret", ["", pytest.param("1", marks=pytest.mark.any_pins)])
def test_what_it_says_of_triton_without_a_gpu_is_so(interpret, tmp_path, monkeypatch):
    """The claim beside "GPU", held against a kernel in a process with the same environment."""
    pytest.importorskip("triton")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("TRITON_INTERPRET", interpret)
    (claim, *_) = gpu.GpusFound().lines()
    script = tmp_path / "one.py"
    script.write_text(KERNEL)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    if interpret:
        assert "kernels run in Triton's CPU interpreter" in claim
        assert "it ran" in done.stdout and done.stdout.endswith("over\n")
    else:
        assert 'kernels fail here ("0 active drivers")' in claim and "TRITON_INTERPRET=1" in claim
        assert done.returncode == 1 and "0 active drivers" in done.stderr


def test_a_gpu_beside_the_interpreter_is_told_to_be_unused(monkeypatch):
    found = gpu.GpusFound(("NVIDIA H200",), "580.1")
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    assert found.lines() == ["NVIDIA H200 (driver 580.1)"]
    monkeypatch.setenv("TRITON_INTERPRET", "yes")
    assert found.lines()[1:] == [gpu.UNUSED]
