"""Bounds that are tried on a GPU: against twins of the same kernels that lack the line."""

import statistics
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

import ikp  # noqa: E402
from ikp.core.run_figures import TriedSuspect, TriedSuspects, read_tried  # noqa: E402
from tests.gpu.tried_cases import CASES, Case  # noqa: E402

pytestmark = pytest.mark.gpu
PROGRAM = ("-m", "tests.gpu.tried_program")


def ran(*command: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def provenance(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("instructions are taken out for sm_90 alone")
    path = tmp_path_factory.mktemp("tried") / "x.pftrace"
    plain = ran(*PROGRAM)
    done = ran("-m", "ikp", "run", "--try", "2", "--out", str(path), *PROGRAM)
    assert done.stdout == plain.stdout
    return dict(ikp.load(path).provenance)


@pytest.fixture(scope="module")
def gains() -> dict[str, float]:
    lines = [line.split() for line in ran(*PROGRAM, "times").stdout.splitlines()]
    return {name: float(gain) for name, gain, _ in lines}


def found(provenance: dict[str, str], name: str) -> TriedSuspects:
    made = read_tried(provenance, name)
    assert made is not None, provenance.get(f"not tried in {name}")
    return made


def of_case(case: Case, provenance: dict[str, str]) -> TriedSuspect:
    suspects = found(provenance, case.name).suspects
    return next(each for each in suspects if each.kind == case.kind)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_gain_is_that_of_a_kernel_without_the_line(
    case: Case, provenance: dict[str, str], gains: dict[str, float]
) -> None:
    one = of_case(case, provenance)
    assert not one.refused
    assert one.gain == pytest.approx(gains[case.name], abs=0.1), one


def test_half_of_the_gains_are_within_five_points(
    provenance: dict[str, str], gains: dict[str, float]
) -> None:
    """The clock of the device differs from one process to the next: single ones may be farther."""
    some = [of_case(case, provenance) for case in CASES]
    off = [abs((one.gain or 0.0) - gains[case.name]) for one, case in zip(some, CASES, strict=True)]
    assert statistics.median(off) <= 0.05, off


def test_a_spin_wait_is_refused(provenance: dict[str, str]) -> None:
    suspects = found(provenance, "spins").suspects
    assert [each.refused for each in suspects if each.kind == "load"] == [
        "how often a loop runs depends on it."
    ]
    assert all(each.gain is None for each in suspects if each.refused)
