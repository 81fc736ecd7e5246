"""Bounds that are tried: what is asked of the other process, and what is kept of its times."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from ikp.backends import further_runs
from ikp.backends.checked import PlainLaunch, add_facts
from ikp.backends.further_runs import try_suspects
from ikp.backends.loaded import Module
from ikp.backends.patched import RecordedLaunch
from ikp.backends.reached import Reached
from ikp.checking.comparison import Buffer, CheckResult
from ikp.checking.messages import LaunchConfiguration, Request, RunTimes
from ikp.core.abi import Language
from ikp.core.run_figures import TriedSuspect, TriedSuspects, read_tried
from ikp.driver import cuda, cuda_memory
from ikp.errors import UsageError
from ikp.probes.code.entry_code import CELL
from ikp.probes.made_patch import Patch
from ikp.sass.disassembly.tools import assemble
from ikp.unedited.plan import plan
from tests.probes.test_suspects import HEAD, KERNEL, LOADS, SPIN

pytestmark = [pytest.mark.compiled, pytest.mark.any_pins]
OUT = Buffer("out", 4096, 16)
TIMES = RunTimes((10e-6, 10e-6, 20e-6), (6e-6, 5e-6, 10e-6))


def cubin(body: str) -> bytes:
    return assemble(HEAD + KERNEL.format(body=body), "PTX")


@pytest.fixture
def trying(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[object, list[Request]]]:
    """Return what tries a kernel's suspects in a module's first launch, and what was asked."""

    def once(
        code: bytes, answer: RunTimes | CheckResult, *, capturing: bool = False
    ) -> tuple[object, list[Request]]:
        asked = list[Request]()

        def run_apart(request: Request) -> tuple[RunTimes | CheckResult, bytes]:
            asked.append(request)
            return answer, b""

        monkeypatch.setattr(further_runs, "run_apart", run_apart)
        monkeypatch.setattr(further_runs, "wait_for_earlier", lambda: None)
        monkeypatch.setattr(further_runs, "reached", lambda *_: Reached((OUT,), ()))
        monkeypatch.setattr(cuda, "capturing", lambda _: capturing)
        monkeypatch.setattr(cuda_memory, "allocate", lambda _: 1 << 33)
        monkeypatch.setattr(cuda_memory, "free", lambda *_: None)
        for name in ("wait", "call"):
            monkeypatch.setattr(cuda, name, lambda *_, **__: None)
        module = Module(Patch(b"", ("k",), 4, (32, 32)), 1, 2, 0)
        shape = LaunchConfiguration((8, 1, 1), (128, 1, 1), 0)
        launched = PlainLaunch("k", code, shape, [(0, bytes(8)), (8, bytes(8))])
        prof = SimpleNamespace(address=1 << 34)
        made = try_suspects(module, 0, prof, 2, "shown", lambda: launched)
        if not capturing:
            assert try_suspects(module, 0, prof, 2, "shown", lambda: launched) is None
        return made, asked

    return once


def test_each_suspect_is_timed_in_turn_with_the_plain_kernel(
    trying: Callable[..., tuple[object, list[Request]]],
) -> None:
    code = cubin(LOADS)
    made, (load, store) = trying(code, TIMES)
    assert isinstance(made, TriedSuspects) and made.of == 2
    first = made.suspects[0]
    assert (first.kind, first.how, first.refused) == ("load", "redirected to one line", "")
    assert (first.plain_ns, first.tried_ns, first.gain) == (10000, 6000, 0.5)
    assert first.spread == pytest.approx(0.05)
    assert all(
        each.rounds and each.plain.cubin == code != each.recorded.cubin for each in (load, store)
    )
    assert load.recorded.constants == {CELL: struct.pack("<QII", 1 << 33, 0, 0)}
    assert load.beside[0].address == 1 << 33
    assert (store.recorded.constants, store.beside, store.buffers) == ({}, (), (OUT,))
    assert further_runs.zeros is not None


def test_what_fails_there_or_is_refused_here_has_a_reason(
    trying: Callable[..., tuple[object, list[Request]]],
) -> None:
    made, _ = trying(cubin(LOADS), CheckResult("without it, the kernel has not ended after 10 s"))
    assert isinstance(made, TriedSuspects)
    assert made.suspects[0].refused == "without it, the kernel has not ended after 10 s."
    assert made.suspects[0].gain is None
    spin, asked = trying(cubin(SPIN), TIMES)
    assert isinstance(spin, TriedSuspects) and not asked
    assert {each.refused for each in spin.suspects} == {"how often a loop runs depends on it."}
    assert trying(cubin(LOADS), TIMES, capturing=True)[0] == "a CUDA graph captures its launch."


def test_a_trace_keeps_what_was_tried_and_why_not() -> None:
    session, tries = SimpleNamespace(facts={}), plan(level="machine", tries=2)
    launch = RecordedLaunch(tries, Language.TRITON, lambda *_: None, tried=TriedSuspects(3, ()))
    add_facts(session, "k", launch)
    launch.tried = "why"
    add_facts(session, "other", launch)
    assert read_tried(session.facts, "k") == TriedSuspects(3, ())
    assert session.facts["not tried in other"] == "why"
    assert tries.needs_machine_code and str(tries).endswith(" tries=2")
    with pytest.raises(UsageError, match="tries needs level='machine'"):
        plan(level="source", tries=1)


@pytest.mark.parametrize(
    ("name", "value"),
    [("kind", None), ("line", 7), ("gain", "x"), ("gain", []), ("instructions", None)],
)
def test_a_damaged_suspect_is_of_the_right_types_or_left_out(name: str, value: object) -> None:
    one = TriedSuspect("load", "a.py:3", 1, gain=0.5)
    said = json.loads(TriedSuspects(1, (one,)).text())
    assert read_tried({"tried in k": json.dumps(said)}, "k") == TriedSuspects(1, (one,))
    said["suspects"][0][name] = value
    found = read_tried({"tried in k": json.dumps(said)}, "k")
    for each in () if found is None else found.suspects:
        assert isinstance(each.kind, str) and isinstance(each.line, str)
        assert each.gain is None or isinstance(each.gain, float)
    assert read_tried({"tried in k": json.dumps({**said, "suspects": [7]})}, "k") is None
