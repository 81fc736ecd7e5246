"""A program's time limit that strikes while a kernel is patched reaches the program, on a GPU."""

import signal
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

import ikp  # noqa: E402
from ikp.probes import patch as patching  # noqa: E402
from tests.gpu.test_machine import known_chip, product  # noqa: E402
from tests.kernels import unedited  # noqa: E402

__all__ = ["known_chip"]  # a fixture
pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:.*is not recorded.*")]


@pytest.fixture
def limit() -> Iterator[None]:
    def over(*_: object) -> None:
        raise TimeoutError("the program's own limit")

    before = signal.signal(signal.SIGALRM, over)
    yield
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("limit")
def test_it_reaches_the_launch_and_the_next_one_is_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = product(unedited.matmul)
    real, struck = patching.patch, []

    def strike(*args: Any, **options: Any) -> Any:
        struck.append(1)
        if len(struck) == 1:
            signal.raise_signal(signal.SIGALRM)
        return real(*args, **options)

    monkeypatch.setattr(patching, "patch", strike)
    # A ratio that no other test asks for: a kernel is patched once for each plan.
    marked = ikp.instrument(unedited.matmul, detail="loops", level="machine", max_overhead=1.4375)
    with ikp.profile() as prof:
        with pytest.raises(TimeoutError, match="the program's own"):
            product(marked)
        assert torch.equal(plain, product(marked))
    assert 1 <= len(struck) <= 2  # it strikes after the patch, or while a tool of NVIDIA's runs
    assert len(prof.trace.launches) == 1
    assert prof.trace.launches[0].dropped == 0
