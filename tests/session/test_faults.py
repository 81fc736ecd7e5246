"""A session on a GPU where a kernel has failed: what was read back before is in the trace."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import ikp
from ikp.core.abi import OverflowMode
from ikp.driver import devices
from ikp.errors import FaultError, IkpWarning
from ikp.session import harvest
from ikp.session.lifting import lift
from ikp.session.service import service_of
from tests.core.decoding.checks import assert_holds
from tests.host import Host, work
from tests.segments import Truth

torch = pytest.importorskip("torch")

SIZE = 64 << 10
ERROR = "CUDA error: an illegal memory access was encountered"


class OnGpu:
    """A segment's memory on a GPU that has failed: nothing of it can be read."""

    is_cuda = True
    device = torch.device("cuda", 0)

    def numel(self) -> int:
        return SIZE

    def __getitem__(self, part: object) -> Any:
        raise RuntimeError(ERROR)

    def numpy(self) -> Any:
        raise RuntimeError(ERROR)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Return what has the GPU fail: what was not read back of a session is lost."""

    def fail(prof: Any) -> None:
        monkeypatch.setattr(devices, "failure", lambda _: ERROR)
        for each in prof._recording._taken:
            if each.lifted is None:
                each.segment.data = OnGpu()

    monkeypatch.setattr(harvest, "BEGIN_BYTES", 4 * SIZE)
    return fail


def launch(host: Host, prof: ikp.profile, label: str) -> Truth:
    buffer = prof.buffer(label, size=SIZE)
    buffer.data.data_ptr()
    return host.run(buffer, work())


def read_back(prof: Any) -> int:
    return sum(each.lifted is not None for each in prof._recording._taken)


def test_the_trace_has_what_was_read_back_and_the_error_names_the_last_launch(
    host: Host, failing: Callable[[Any], None], tmp_path: Any
) -> None:
    path, count = tmp_path / "x.lines", [0]

    def session() -> None:
        with ikp.profile(path) as prof:
            prof.facts["marks in second"] = "level=machine detail=ops"
            truths.extend(launch(host, prof, "first") for _ in range(18))
            truths.append(launch(host, prof, "second"))
            count[0] = read_back(prof)
            opened.append(prof)
            failing(prof)

    truths: list[Truth] = []
    opened: list[ikp.profile] = []
    with pytest.raises(FaultError) as raised:
        session()
    assert 0 < count[0] < 18
    assert_holds(opened[0].trace, *truths[: count[0]])
    assert len(path.read_text().splitlines()) == count[0]
    assert str(raised.value) == (
        f"a kernel failed on the GPU (cuda:0: {ERROR}). Before that, {count[0]} of 19 recorded "
        f"launches had been read back, and are in the trace; {19 - count[0]} are lost. The last "
        "recorded launch was second (level=machine detail=ops); not known to have ended: first "
        f"({18 - count[0]}). To see whether records are the cause, run again with --check, or "
        "choose other kernels with --kernel; IKP=0 records nothing."
    )
    assert opened[0].trace.provenance["fault"] == str(raised.value)


def test_the_programs_own_error_is_what_it_sees(host: Host, failing: Callable[[Any], None]) -> None:
    def program() -> None:
        with ikp.profile() as prof:
            opened.append(prof)
            launch(host, prof, "k")
            failing(prof)
            raise RuntimeError("the program's own")

    opened: list[ikp.profile] = []
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with pytest.raises(RuntimeError, match=r"^the program's own$"):
            program()
    (warning,) = (each for each in told if each.category is IkpWarning)
    assert str(warning.message).startswith("a kernel failed on the GPU")
    assert not opened[0].trace.launches


def test_a_kernel_that_was_not_recorded_may_fail_and_nothing_is_lost(
    host: Host, failing: Callable[[Any], None]
) -> None:
    def program() -> None:
        with ikp.profile() as prof:
            opened.append(prof)
            truths.append(launch(host, prof, "k"))
            (taken,) = prof._recording._taken  # type: ignore[union-attr]
            taken.lifted, _ = lift(service_of(taken.segment.data.device).storage, taken.segment)
            taken.segment.data = OnGpu()
            failing(prof)

    opened: list[ikp.profile] = []
    truths: list[Truth] = []
    with pytest.raises(FaultError, match=r"1 of 1 .* none is lost\.$"):
        program()
    assert_holds(opened[0].trace, *truths)


def test_a_stream_is_there_as_far_as_it_was_read_and_its_last_ranges_count(
    host: Host, failing: Callable[[Any], None]
) -> None:
    """A store that fails is reported later: its warp may have ended the range, and finished."""

    def program() -> None:
        with ikp.profile(overflow="stream") as prof:
            opened.append(prof)
            host.run(prof.buffer("k", size=SIZE), work(overflow=OverflowMode.STREAM))
            (taken,) = prof._recording._taken  # type: ignore[union-attr]
            assert taken.drain is not None
            taken.drain.step()
            failing(prof)

    opened: list[ikp.profile] = []
    with pytest.raises(FaultError) as raised:
        program()
    said = str(raised.value)
    assert "1 of 1 recorded launches had been read back" in said
    assert "(k as far as it was read while it ran): none is lost. A warp goes on after" in said
    (kept,) = opened[0].trace.launches
    assert kept.kept == kept.attempted > 0
