"""A GPU of air: kernels are compiled and patched for it, and what would be launched is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import triton
from triton import knobs

from ikp.backends.loaded import Modules
from ikp.backends.triton.unedited import _machine_code as machine_code
from ikp.driver import cuda, cuda_functions, cuda_memory
from tests.backends.triton.test_foreign import Gpu

PLAIN, MARKED = 1, 2
"""Functions of the driver's: a kernel's own, and that of what was patched."""


def on_air(
    monkeypatch: pytest.MonkeyPatch,
    kernel: Any,
    launcher: Callable[[], Any],
    loaded: Callable[[bytes], None],
) -> None:
    """Have a kernel launched there.

    Args:
        monkeypatch: takes all of it back.
        kernel: Triton's.
        launcher: makes what Triton launches it with.
        loaded: is told the cubins that ikp loads.
    """

    class Here(Gpu):
        def load_binary(self, name: str, *_: Any) -> tuple[Any, ...]:
            return None, PLAIN, 32, 0, 1024  # no module: nothing has to be unloaded, ever

        def launcher_cls(self, source: Any, metadata: Any) -> Any:
            return launcher()

    def load(cubin: bytes, name: str) -> tuple[int, int]:
        loaded(cubin)
        return 7, MARKED

    monkeypatch.setattr(triton.runtime.driver, "_active", Here())
    monkeypatch.setattr(knobs.compilation, "always_compile", True)
    monkeypatch.setattr(machine_code, "modules", Modules())
    monkeypatch.setattr(cuda_functions, "load", load)
    values: dict[str, Any] = {
        "capturing": False,
        "context": 0,
        "context_number": 0,
        "device": 0,
        "need_context": None,
    }
    for name, value in values.items():
        monkeypatch.setattr(cuda, name, lambda *_, value=value: value)
    for name, value in {"address_of": 64, "registers": 255, "like": None}.items():
        monkeypatch.setattr(cuda_functions, name, lambda *_, value=value, **__: value)
    for name in ("far_memory", "write"):
        monkeypatch.setattr(cuda_memory, name, lambda *_: None)
    kernel.device_caches.clear()
