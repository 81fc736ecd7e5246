"""Memory for records is zero, whatever it held before."""

from __future__ import annotations

import pytest

from ikp.session import zeros

torch = pytest.importorskip("torch")

PIECE = 100


@pytest.mark.parametrize("size", [1, PIECE - 1, PIECE, PIECE + 1, 7 * PIECE + 3])
@pytest.mark.parametrize("pinned", [True, False], ids=["from the host", "no memory to pin"])
def test_what_was_there_before_is_gone(
    size: int, pinned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    full, some = torch.full, torch.zeros(PIECE, dtype=torch.uint8)
    monkeypatch.setattr(torch, "empty", lambda *shape, **kind: full(shape, 7, **kind))
    monkeypatch.setattr(zeros, "_PIECE_BYTES", PIECE)
    monkeypatch.setattr(zeros, "_on_host", lambda: some if pinned else None)
    found = zeros.zeroed(size, torch.device("cpu", 0))  # "cpu" alone takes the system's pages
    assert found.shape == (size,) and found.dtype is torch.uint8 and not found.any()
