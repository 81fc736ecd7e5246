"""Address probes on a GPU: figures against answers that are known, and results as without them."""

import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

import ikp  # noqa: E402
from ikp.core.run_figures import AddressFigures, read_addresses  # noqa: E402
from tests.gpu.address_cases import BLOCKS, CASES, THREADS, TURNS, Case  # noqa: E402

pytestmark = pytest.mark.gpu


def ran(*command: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, AddressFigures | str]:
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("address probes are made for sm_90 alone")
    path = tmp_path_factory.mktemp("addresses") / "x.pftrace"
    program = ["-m", "tests.gpu.address_program"]
    plain = ran(*program)
    done = ran("-m", "ikp", "run", "--probe", "addresses", "--out", str(path), *program)
    assert done.stdout == plain.stdout
    said = ikp.load(path).provenance
    return {
        case.name: read_addresses(said, case.name)
        or said.get(f"no addresses of {case.name}", done.stderr[-2000:])
        for case in CASES
    }


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_figures_are_those_counted_by_hand(
    case: Case, found: dict[str, AddressFigures | str]
) -> None:
    told = found[case.name]
    assert isinstance(told, AddressFigures), told
    assert "equal bit for bit" in told.checked
    each = next(one for one in told.accesses if (one.space, one.kind) == (case.space, case.kind))
    warps = told.blocks * THREADS // 32
    assert (told.of_blocks, told.warps, told.blocks) == (BLOCKS, warps, 4)
    assert (each.requests, each.dropped) == (warps * TURNS, 0)
    assert (each.active, each.cost) == (len(case.lanes), case.cost)
    assert each.executed == warps * TURNS * len(case.lanes)
    assert (each.same_address, each.width) == (case.same, case.width)
    assert each.reuse == pytest.approx(_reuse(case), rel=0.01)


def _reuse(case: Case) -> float:
    """Of a block: of global memory each warp has its own, and all have one shared memory."""
    unit = 32 if case.space == "global" else 4
    turns = [{(at + turn * case.turn) // unit for at in case.addresses} for turn in range(TURNS)]
    asked = sum(map(len, turns))
    distinct = len(set().union(*turns))
    return asked / distinct * (1 if case.space == "global" else THREADS // 32)
