"""Memory for records is zero, whatever it held before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ikp.session import zeros

torch = pytest.importorskip("torch")

PIECE = 100


class Elsewhere:
    """Bytes of a device that is not here, which were used before."""

    device = torch.device("meta")

    def __init__(self, data: Any) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def split(self, size: int) -> list[Elsewhere]:
        return [Elsewhere(self.data[i : i + size]) for i in range(0, len(self), size)]

    def copy_(self, source: Any, *, non_blocking: bool) -> None:
        assert non_blocking and len(source) == len(self)
        self.data[:] = source

    def zero_(self) -> None:
        self.data[:] = 0


@pytest.mark.parametrize("size", [1, PIECE - 1, PIECE + 1, 7 * PIECE + 3])
@pytest.mark.parametrize("pinned", [True, False], ids=["from the host", "no memory to pin"])
def test_what_was_there_before_is_gone(
    size: int, pinned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Elsewhere(np.full(size, 7, np.uint8))
    source = np.zeros(PIECE, np.uint8) if pinned else None
    monkeypatch.setattr(torch, "empty", lambda asked, **_: made if asked == size else None)
    monkeypatch.setattr(zeros, "_PIECE_BYTES", PIECE)
    monkeypatch.setattr(zeros, "_on_host", lambda: source)
    if pinned:
        monkeypatch.delattr(Elsewhere, "zero_")
    assert zeros.zeroed(size, made.device) is made
    assert not made.data.any()


def test_the_hosts_own_is_zeroed_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(zeros, "_on_host")
    used = torch.full((9,), 7, dtype=torch.uint8)
    zeros.zero(used)
    assert not used.any() and not zeros.zeroed(9, torch.device("cpu")).any()
