"""A launch with address probes: what is asked of the other process, and what is kept of it."""

from __future__ import annotations

import struct
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from ikp.backends import further_runs
from ikp.backends.checked import PlainLaunch, add_facts
from ikp.backends.further_runs import probe_addresses, run_further
from ikp.backends.loaded import Module
from ikp.backends.patched import RecordedLaunch
from ikp.backends.reached import Reached
from ikp.checking.comparison import Buffer, CheckResult
from ikp.checking.messages import LaunchConfiguration, Request
from ikp.core.abi import Language
from ikp.core.run_figures import AddressFigures, read_addresses
from ikp.driver import cuda, cuda_memory
from ikp.errors import UsageError
from ikp.probes.code.entry_code import CELL
from ikp.probes.made_patch import Patch
from ikp.sass.disassembly.tools import assemble
from ikp.unedited.plan import NEEDED, plan
from tests.probes.test_access_probes import BLOCKS, LANES, PTX, WARPS

pytestmark = [pytest.mark.compiled, pytest.mark.any_pins]
EQUAL = CheckResult("1 buffer, 16 bytes, equal bit for bit")
OUT, PLAIN = Buffer("out", 4096, 16), assemble(PTX, "PTX")
WINDOW = 1 << 32
PLAN = plan(level="machine", probe="addresses")


def one_lane(request: Request) -> bytes:
    """Return the tables after one lane has stored an address, in each."""
    assert request.result is not None
    words = np.zeros(request.result.nbytes // 4, "<u4")
    words[0] = 1
    words[4:8] = (3, 0x1000, 0, 1 << 3)
    return words.tobytes()


class Session:
    """A session, which is known by reference."""


@pytest.fixture
def probing(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[object]]:
    """Return what probes two launches of a module in one session, and one in each later session."""

    def two(
        verdict: CheckResult,
        fill: Callable[[Request], bytes],
        cubin: bytes = PLAIN,
        places: tuple[int, ...] = (1 << 33,),
        *,
        capturing: bool = False,
        later: Sequence[Session] = (),
    ) -> list[object]:
        asked, freed, free = list[Request](), list[int](), iter(places)

        def run_apart(request: Request) -> tuple[CheckResult, bytes]:
            asked.append(request)
            return verdict, fill(request)

        monkeypatch.setattr(further_runs, "run_apart", run_apart)
        monkeypatch.setattr(further_runs, "wait_for_earlier", lambda: None)
        monkeypatch.setattr(further_runs, "reached", lambda *_: Reached((OUT,), ()))
        monkeypatch.setattr(cuda, "capturing", lambda _: capturing)
        monkeypatch.setattr(cuda_memory, "allocate", lambda _: next(free))
        monkeypatch.setattr(cuda_memory, "free", freed.append)
        monkeypatch.setattr(cuda, "call", lambda *_, **__: None)
        monkeypatch.setattr(cuda, "wait", lambda: None)
        module = Module(Patch(b"", ("k",), WARPS, (32, 32)), 1, 2, 0)
        shape = LaunchConfiguration((BLOCKS, 1, 1), (WARPS * LANES, 1, 1), 0)
        launched = PlainLaunch("k", cubin, shape, [(0, bytes(8)), (8, bytes(4))])
        prof = SimpleNamespace(address=1 << 34)
        first = Session()
        sessions = [weakref.ref(each) for each in (first, first, *later)]
        made = [
            probe_addresses(module, 0, prof, PLAN, "", "shown", lambda: launched, each)
            for each in sessions
        ]
        assert freed == [*places] or not asked
        return [*made, *asked]

    return two


def test_a_kernel_is_probed_once_and_its_tables_become_figures(
    probing: Callable[..., list[object]],
) -> None:
    found, again, request = probing(EQUAL, one_lane)
    assert again is None
    assert isinstance(found, AddressFigures) and isinstance(request, Request)
    assert (found.blocks, found.of_blocks, found.checked) == (4, BLOCKS, EQUAL.text)
    assert (found.accesses[0].requests, found.accesses[0].active) == (1, 1)
    assert found.accesses[0].range.startswith("iteration")
    cell = struct.pack("<QII", 1 << 33, 4 * WARPS, 0)
    assert request.recorded.constants == {CELL: cell} and request.plain.constants == {}
    assert request.result in request.beside and request.recorded.cubin != PLAIN
    assert (request.plain.cubin, request.buffers) == (PLAIN, (OUT,))


def test_each_session_has_figures_of_its_own(probing: Callable[..., list[object]]) -> None:
    places, later = (1 << 33, 1 << 35, 1 << 36), [Session(), Session()]
    first, again, *found = probing(EQUAL, one_lane, places=places, later=later)
    assert again is None and len(found) == 2 + 3
    assert first == found[0] == found[1] and isinstance(first, AddressFigures)


def test_a_buffer_lies_in_one_window_of_addresses(probing: Callable[..., list[object]]) -> None:
    *_, request = probing(EQUAL, one_lane, places=(WINDOW - 4096, 1 << 35))
    assert isinstance(request, Request) and request.result is not None
    assert request.result.address == 1 << 35


def test_where_it_fails_the_trace_has_the_reason(probing: Callable[..., list[object]]) -> None:
    refused, *_ = probing(CheckResult("out differs", refused=True), lambda _: b"")
    assert refused == "with address probes: out differs."
    captured, again = probing(EQUAL, one_lane, capturing=True)
    assert captured == again == "a CUDA graph captures its launch."
    empty = PTX.partition(" .reg")[0] + " ret;\n}\n"
    why, *_ = probing(EQUAL, one_lane, assemble(empty, "PTX"))
    assert str(why).startswith("shown has no access to memory by lane")


@pytest.mark.parametrize(("probe", "kept"), [("addresses", "why"), (NEEDED, None)])
def test_what_was_not_asked_for_leaves_no_reason(
    probe: str, kept: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(further_runs, "probe_addresses", lambda *_: "why")
    launch = RecordedLaunch(replace(PLAN, probe=probe), Language.TRITON, lambda *_: None)
    module, unused = Module(Patch(b"", ("k",), WARPS, (32, 32)), 1, 2, 0), SimpleNamespace()
    run_further(module, 0, unused, launch, str, "", lambda: pytest.fail("nothing runs"))
    assert launch.addresses == kept


def test_a_trace_keeps_the_figures_of_a_labels_first_kernel() -> None:
    session = SimpleNamespace(facts={})
    found = AddressFigures(1, 2, 3, "equal", (), ())
    launch = RecordedLaunch(PLAN, Language.TRITON, lambda *_: None, addresses=found)
    add_facts(session, "k", launch)
    launch.addresses = AddressFigures(9, 9, 9, "equal", (), ())
    add_facts(session, "k", launch)
    launch.addresses = "why"
    add_facts(session, "other", launch)
    assert read_addresses(session.facts, "k") == found
    assert session.facts["no addresses of other"] == "why"


def test_probes_need_machine_code() -> None:
    assert str(PLAN) == "level=machine detail=loops probe=addresses" and PLAN.needs_machine_code
    with pytest.raises(UsageError, match="probe needs level='machine'"):
        plan(level="source", probe="addresses")
