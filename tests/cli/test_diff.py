import json

import numpy as np
import pytest
from click.testing import CliRunner

import ikp
from ikp.cli.main import cli
from tests.analysis.diff.noise import alternating, effects, of_one_role, run

pytestmark = pytest.mark.any_pins


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("diff")
    noise = np.random.default_rng(0)
    old, new = (of_one_role(one) for one in alternating(noise, 12, {"dot": 1.1}))
    old.save(folder / "old.pftrace")
    new.save(folder / "new.pftrace")
    for i in range(3):
        name = folder / "runs" / f"{i}.pftrace"
        name.parent.mkdir(exist_ok=True)
        of_one_role(run(noise, effects(noise, 3))).save(name)
    return folder


def invoke(*words):
    return CliRunner().invoke(cli, ["diff", *map(str, words)])


def test_the_table_is_the_differences_own(files):
    result = invoke(files / "old.pftrace", files / "new.pftrace")
    assert result.exit_code == 0, result.output
    sides = (ikp.load(files / f"{name}.pftrace") for name in ("old", "new"))
    assert result.stdout == f"{ikp.diff(*sides)}\n"
    assert "dot" in result.stdout and "longer" in result.stdout
    assert result.stderr.startswith(f"next: ikp view {files / 'new.pftrace'}")


def test_json_is_clean_on_stdout(files):
    result = invoke(files / "old.pftrace", files / "new.pftrace", "--format", "json")
    found = json.loads(result.stdout)
    assert found["version"] == 2 and found["moved"]


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        ((), 0),
        (("dot.p50=+20%",), 0),
        (("dot.p50=+3%",), 3),
        (("dot.p50=+10%",), 4),
        (("dot.p50=+10%", "duration=+1%"), 3),
        (("dot.p50",), 1),
        (("nothing.p50=+3%",), 1),
    ],
)
def test_the_exit_code_says_what_became_of_limits(files, limits, code):
    words = [word for limit in limits for word in ("--fail-over", limit)]
    result = invoke(files / "old.pftrace", files / "new.pftrace", *words)
    assert result.exit_code == code, result.output


def test_one_file_may_hold_both(files):
    both = files / "both.pftrace"
    old, new = (ikp.load(files / f"{name}.pftrace") for name in ("old", "new"))
    renamed = ikp.edit.rename_launches(new, {"gemm": "gemm2"})
    ikp.edit.concat([old, renamed]).save(both, force=True)
    result = invoke(both, both, "--old", "gemm", "--new", "gemm2", "--format", "json")
    assert json.loads(result.stdout)["kernels"][0]["design"] == "alternating"


@pytest.mark.parametrize("side", ["runs", "runs/*.pftrace"])
def test_a_side_may_be_several_runs(files, side):
    result = invoke(files / side, files / "runs", "--format", "json")
    assert json.loads(result.stdout)["kernels"][0]["launches"] == [9, 9]


def test_what_is_not_there_is_told(files, tmp_path):
    assert "no such file" in invoke(files / "none.pftrace", files / "old.pftrace").stderr
    assert "no such file" in invoke(files / "none*.pftrace", files / "old.pftrace").stderr
    assert "without a .pftrace" in invoke(files / "old.pftrace", tmp_path).stderr
    result = invoke(files / "old.pftrace", files / "new.pftrace", "--old", "x*")
    assert result.exit_code == 1 and "no launch matches" in result.stderr
