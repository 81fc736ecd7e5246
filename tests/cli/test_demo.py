import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import ikp
from ikp.cli import _demo as demo
from ikp.cli._demo import PROGRAM
from ikp.cli.main import cli

REGIONS = {"load q", "load k, v", "q @ k", "softmax", "p @ v", "tile", "store", "rows done"}
BLOCKS = demo.ON_CPU.tiles * demo.ON_CPU.heads
TILES = demo.ON_CPU.heads * demo.ON_CPU.tiles * (demo.ON_CPU.tiles + 1) // 2


def run(folder, *words, **variables):
    """Run the command in ``folder`` as if there were no GPU, letting it choose the interpreter."""
    kept = {k: v for k, v in os.environ.items() if k not in {"TRITON_INTERPRET", "IKP"}}
    return subprocess.run(
        [sys.executable, "-m", "ikp.cli.main", *words],
        cwd=folder,
        env={**kept, "CUDA_VISIBLE_DEVICES": "", **variables},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def done(folder):
    return run(folder, "demo")


@pytest.mark.interp
def test_without_a_gpu_it_says_so_and_prints_the_table(done):
    assert done.returncode == 0, done.stderr
    assert "no GPU found: running in Triton's CPU interpreter" in done.stderr
    assert max(map(len, done.stderr.splitlines())) <= 80
    assert "the kernel's result agrees with PyTorch's within" in done.stderr
    for region in REGIONS:
        assert region in done.stdout
    assert "none dropped" in done.stdout
    assert "No cause is looked for: the times are the interpreter's" in done.stdout
    assert "Warning" not in done.stderr


@pytest.mark.interp
def test_it_ends_with_the_next_command(done, folder):
    assert f"wrote {demo.DEFAULT}" in done.stderr
    assert "next: ikp view ikp-demo.pftrace" in done.stderr.splitlines()[-1]
    kernel = done.stderr.partition("The kernel: ")[2].splitlines()[0]
    assert "@triton.jit" in Path(kernel).read_text()


@pytest.mark.interp
def test_ikp_stats_reads_the_same_numbers_from_the_file(done, folder):
    read = CliRunner().invoke(cli, ["stats", str(folder / demo.DEFAULT), "--format", "json"])
    assert read.exit_code == 0, read.stderr
    rows = {row["region"]: row for row in json.loads(read.stdout)["tables"][0]["rows"]}
    assert set(rows) == REGIONS
    assert rows["load q"]["count"] == rows["store"]["count"] == rows["rows done"]["count"] == BLOCKS
    assert rows["tile"]["count"] == rows["softmax"]["count"] == TILES
    assert rows["rows done"]["kind"] == "instant"
    assert rows["tile"]["total_ns"] >= rows["softmax"]["total_ns"] > 0
    table = run(folder, "stats", str(demo.DEFAULT))
    verdict = run(folder, "explain", str(demo.DEFAULT))
    assert done.stdout.strip() == f"{table.stdout.strip()}\n\n{verdict.stdout.strip()}"


@pytest.mark.any_pins
@pytest.mark.interp
def test_its_own_file_is_replaced_and_others_with_force(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words in ([], ["--out", "mine.pftrace", "--force"]):
        path = Path(words[1] if words else demo.DEFAULT)
        path.write_text("of yesterday")
        assert CliRunner().invoke(cli, ["demo", *words]).exit_code == 0
        assert path.stat().st_size > 1000


@pytest.mark.compiled
@pytest.mark.parametrize("capability", [80, 90, 100])
def test_the_kernel_compiles_for_gpus_with_all_its_regions(capability):
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from ikp.backends.triton import TritonBackend
    from ikp.backends.triton._hooks import names_in_code
    from ikp.cli._demo_kernel import attention
    from ikp.core.segment import Spec

    TritonBackend()  # hooks into the compiler, as opening a session does
    constants = {"TILES": 16, "BLOCK": demo.BLOCK, "DIM": demo.DIM}
    signature = {
        **dict.fromkeys(("q", "k", "v", "out"), "*fp16"),
        "scale": "fp32",
        "prof": ("*u8", "i32", "constexpr"),
        **dict.fromkeys(constants, "constexpr"),
    }
    places = {(attention.arg_names.index(name),): value for name, value in constants.items()}
    places[attention.arg_names.index("prof"), 2] = str(Spec())
    source = ASTSource(attention, signature, constexprs=places)
    compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32))
    assert set(names_in_code(compiled.asm["ptx"]).values()) == REGIONS


def test_a_file_that_exists_is_refused(tmp_path):
    path = tmp_path / "mine.pftrace"
    path.write_text("mine")
    result = CliRunner().invoke(cli, ["demo", "--out", str(path)])
    assert result.exit_code == 1
    assert "mine.pftrace exists: pass force=True to overwrite it" in result.stderr
    assert path.read_text() == "mine"


def test_the_kill_switch_is_told(monkeypatch):
    monkeypatch.setenv("IKP", "0")
    result = CliRunner().invoke(cli, ["demo"])
    assert result.exit_code == 1
    assert "IKP=0 in the environment turns recording off" in result.stderr


def test_without_triton_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(demo, "find_spec", lambda name: None if name == "triton" else object())
    result = CliRunner().invoke(cli, ["demo"])
    assert result.exit_code == 1
    assert (
        "needs what is not installed here: triton. Do: pip install 'ikp[triton]'" in result.stderr
    )
    assert "ikp demo --recorded" in result.stderr


@pytest.fixture
def without_languages(monkeypatch):
    """As after a plain ``pip install ikp``: neither torch nor Triton is there."""
    for name in ("torch", "triton", "cutlass"):
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.usefixtures("without_languages")
def test_a_recorded_kernel_is_shown_without_gpu_torch_and_triton(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):  # its own files are replaced
        result = CliRunner().invoke(cli, ["demo", "--recorded"])
        assert result.exit_code == 0, result.output
    assert "recorded on NVIDIA H100" in result.stderr
    text = " ".join(result.stdout.split())
    assert "iteration @parallel.py:102" in text and "at most 37.3 % less time" in text
    assert "[imbalance, measured]" in text and "start the long blocks first" in text
    names = {"ikp-demo.pftrace", "ikp-demo-before.pftrace", "ikp-demo-after.pftrace"}
    assert {path.name for path in tmp_path.iterdir()} == {*names, "ikp-demo.html"}
    assert "imbalance" in Path("ikp-demo.html").read_text()
    assert result.stderr.splitlines()[-1].startswith("next: ikp view --finding 1 ikp-demo.pftrace ")
    sides = ["ikp-demo-before.pftrace", "ikp-demo-after.pftrace"]
    verdict = CliRunner().invoke(cli, ["explain", "ikp-demo.pftrace"]).stdout
    difference = CliRunner().invoke(cli, ["diff", *sides]).stdout
    assert "73.96 us -> 49.60 us" in difference and "shorter" in difference
    of_both = f"{verdict}\nWith long blocks first, as the first finding advises:\n{difference}"
    assert result.stdout.endswith(of_both)
    assert f"next: ikp diff {' '.join(sides)} " in result.stderr


@pytest.mark.any_pins
@pytest.mark.parametrize("name", ["x.pftrace", "x-after.pftrace", "x.html"])
def test_a_file_that_exists_is_refused_before_any_is_written(tmp_path, name):
    (tmp_path / name).write_text("mine")
    words = ["demo", "--recorded", "--out", str(tmp_path / "x.pftrace")]
    result = CliRunner().invoke(cli, words)
    assert result.exit_code == 1 and f"{name} exists" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert CliRunner().invoke(cli, [*words, "--force"]).exit_code == 0
    assert len(list(tmp_path.iterdir())) == 4 and (tmp_path / name).read_bytes() != b"mine"


@pytest.mark.any_pins
def test_what_ships_is_small_and_names_no_machine():
    from ikp.cli._demo import AFTER, BEFORE, TRACE

    assert sum(path.stat().st_size for path in (TRACE, BEFORE, AFTER)) < 500_000
    for path in (TRACE, BEFORE, AFTER):
        trace = ikp.load(path)
        assert not any(each.dropped for each in trace.launches)
        texts = [*trace.provenance, *trace.provenance.values()]
        assert not [one for one in texts if re.search(r"/tmp|/root|/home|-fc-|-packages", one)]


@pytest.mark.any_pins
@pytest.mark.usefixtures("without_languages")
def test_a_program_is_written_and_an_edited_one_is_not_replaced(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):  # an equal file is left as it is
        result = CliRunner().invoke(cli, ["demo", "--program"])
        assert result.exit_code == 0, result.output
    path = Path(PROGRAM.name)
    assert path.read_bytes() == PROGRAM.read_bytes() and "import ikp" not in path.read_text()
    assert "next: ikp run --detail ops attention.py " in result.stderr
    assert "It needs torch and triton: pip install 'ikp[triton]'" in result.stderr
    path.write_text("mine")
    result = CliRunner().invoke(cli, ["demo", "--program"])
    assert result.exit_code == 1 and "attention.py exists" in result.stderr
    assert path.read_text() == "mine"
    assert CliRunner().invoke(cli, ["demo", "--program", "--force"]).exit_code == 0
    assert path.read_bytes() == PROGRAM.read_bytes()
    both = CliRunner().invoke(cli, ["demo", "--program", "--recorded"])
    assert both.exit_code == 1 and "give one" in both.stderr


@pytest.mark.interp
@pytest.mark.parametrize(
    "order", [[], pytest.param(["--longest-first"], marks=pytest.mark.any_pins)]
)
def test_without_a_gpu_the_program_runs_right_and_no_time_is_called_a_gpus(tmp_path, order):
    assert run(tmp_path, "demo", "--program").returncode == 0
    done = run(tmp_path, "run", "--detail", "ops", PROGRAM.name, *order)
    assert done.returncode == 0, done.stderr
    off = float(done.stdout.partition("result: ")[2].split()[0])
    assert off < 2e-3 and "no GPU: it ran in Triton's interpreter" in done.stdout
    assert "No cause is looked for: the times are the interpreter's" in done.stderr
    assert "@attention.py:" in done.stderr
