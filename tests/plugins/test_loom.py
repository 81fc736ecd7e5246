"""A language that ikp has never heard of: one package adds it, through ``ikp.plugins`` alone."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

import ikp
from ikp import plugins
from ikp.core.abi import Kind
from tests.plugins.conftest import LOOM, PLUGIN, Run, python
from tests.processes import use_slim_torch
from tests.repo.test_imports import every_import, within

pytest.importorskip("torch")

PROGRAM = """
import sys
import ikp, loom

@loom.kernel(warps=2)
def scale(x, factor, prof):
    ctx = ikp.init(prof)
    ikp.role("weaver" if loom.current().warp else "lead")
    with ikp.range("scale", len(x)):
        token = ikp.no_token(ctx, "element", 0)
        for i in loom.mine(len(x)):
            ctx = ikp.end_async(ctx, token)
            token = ikp.start_async(ctx, "element", i)
            x[i] *= factor
        ctx = ikp.end_async(ctx, token)
    ctx = ikp.start(ctx, "even", block := loom.current().block)
    ctx = ikp.end(ctx, "even", where=block % 2 == 0)
    ikp.instant(ctx, "done", 1.5)
    ikp.finish(ctx)

for at, (profile, buffer) in enumerate(eval(sys.argv[1])):
    x = [1.0] * 24
    with ikp.profile(f"{at}.pftrace", backend="loom", **profile) as prof:
        scale[3](x, 2.0, prof.buffer("scale", **buffer))
    scale[3](x, 0.5, None)
    assert x == [1.0] * 24
assert not {"triton", "cutlass"} & set(sys.modules)
"""
SESSIONS = (
    "({}, {})",
    "({'clock': 'cycles64'}, {})",
    "({}, {'blocks': range(1, 3), 'warps': [1]})",
    "({'overflow': 'wrap', 'buffer_size': 128 + 6 * (64 + 4 * 16)}, {})",
    "({'buffer_size': 128 + 6 * (64 + 5 * 16)}, {})",
)
"""Options of a session and of a buffer; one process has them all, each with its own trace."""

COMMANDS = """
import json, sys
from click.testing import CliRunner
from ikp.cli.main import cli

commands = (["stats", sys.argv[1]], ["plugins", "--check"], ["doctor", "--format", "json"])
print(json.dumps([CliRunner().invoke(cli, words).stdout for words in commands]))
"""


@pytest.fixture(scope="module")
def traces(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the traces that the program wrote, one for each of SESSIONS."""
    folder = tmp_path_factory.mktemp("loom")
    use_slim_torch(folder)
    done = python(site, folder, "-W", "ignore", "-c", PROGRAM, f"[{', '.join(SESSIONS)}]")
    assert (done.returncode, done.stderr) == (0, "")
    return folder


def counts(trace: ikp.Trace) -> dict[str, int]:
    names = [trace.regions[region].name for region in trace.events.region]
    return {name: names.count(name) for name in sorted(set(names))}


def test_a_kernel_of_its_own_records_with_ikps_verbs(traces: Path) -> None:
    trace = ikp.load(traces / "0.pftrace")
    (launch,) = trace.launches
    assert (launch.label, launch.backend, launch.grid) == ("scale", "loom", (3, 1, 1))
    assert (launch.kept, launch.attempted, launch.notes) == (40, 40, ())
    assert counts(trace) == {"done": 6, "element": 24, "even": 4, "scale": 6}
    element = [region.name for region in trace.regions].index("element")
    assert sorted(trace.payload[trace.events.region == element]) == list(range(24))
    assert trace.payload[trace.events.kind == Kind.INSTANT].tolist() == [1.5] * 6
    assert set(zip(trace.slots.block.tolist(), trace.slots.warp.tolist(), strict=True)) == {
        (block, warp) for block in range(3) for warp in range(2)
    }


@pytest.mark.any_pins
@pytest.mark.parametrize(("session", "kept"), [(1, 40), (2, 13), (3, 24), (4, 30)])
def test_the_options_of_a_session_are_heeded(traces: Path, session: int, kept: int) -> None:
    (launch,) = ikp.load(traces / f"{session}.pftrace").launches
    assert launch.kept == kept


@pytest.mark.any_pins
def test_commands_know_it(run: Run, traces: Path) -> None:
    """All in one process: two of them import all of torch, Triton and CuTe."""
    told = run("-W", "ignore", "-c", COMMANDS, str(traces / "0.pftrace"))
    table, listed, doctor = json.loads(told.stdout)
    assert "element" in table
    (row,) = (line.split() for line in listed.splitlines() if " loom " in line)
    assert row == ["backend", "loom", "ikp-plugin-loom", "0.1.0", "ikp_loom:LoomBackend", "loads"]
    (found,) = (each for each in json.loads(doctor)["plugins"] if each["name"] == "loom")
    assert found["loads"]


@pytest.mark.any_pins
def test_outside_its_kernels_verbs_say_where_they_belong(run: Run) -> None:
    done = run("-c", "import ikp, loom; ikp.init(None)")
    assert "KernelError: ikp.init is called outside a kernel" in done.stderr
    assert "or @loom.kernel, while that kernel is launched." in done.stderr


@pytest.mark.any_pins
def test_its_mistakes_are_told_in_ikps_words(run: Run) -> None:
    program = "import ikp, loom; loom.kernel()(lambda: ikp.range('x').__enter__())[1]()"
    assert "ikp.range comes before ikp.init" in run("-c", program).stderr


@pytest.mark.any_pins
def test_without_its_package_a_program_loads_nothing_of_it(run: Run) -> None:
    script = """
import sys, ikp
try:
    ikp.init(None)
except ikp.KernelError as error:
    print("loom" in str(error), any("loom" in name for name in sys.modules))
"""
    assert run("-c", script).stdout.strip() == "False False"


@pytest.mark.any_pins
@pytest.mark.parametrize("plugin", [PLUGIN, LOOM], ids=lambda path: path.name)
def test_it_imports_from_the_door_alone(plugin: Path) -> None:
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in plugin.rglob("*.py")]
    used = {name for tree in trees for name in every_import(tree) if within(name, "ikp")}
    assert used
    assert used <= {f"ikp.plugins.{name}" for name in plugins.__all__}


EXTENDED = """
import numpy as np, pytest
from tests.extended import check, extend
patch = pytest.MonkeyPatch()
extend(patch)
import ikp, loom

@loom.kernel(warps=2)
def one(prof):
    ikp.init(prof)

with ikp.profile(backend="loom") as prof:
    segment = prof.buffer("one")
    one[3](segment)
    check(segment.data.numpy())
patch.undo()
"""


def test_a_new_field_of_the_launch_header_is_written(site: Path, tmp_path: Path) -> None:
    use_slim_torch(tmp_path)
    done = python(site, tmp_path, "-c", EXTENDED)
    assert done.returncode == 0, done.stderr
