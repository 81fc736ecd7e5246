"""A GPU that processes share by MPS is named in the trace: kernels of others may run beside it."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest

import ikp
from ikp.core.decoding.decode import decode
from ikp.core.trace import of_class
from ikp.driver import cuda
from ikp.session import provenance, storage

pytestmark = pytest.mark.any_pins

MPS_ENABLED = 133  # CU_DEVICE_ATTRIBUTE_MPS_ENABLED


class Driver:
    """The driver's answers on a device, whose second GPU is shared."""

    def __init__(self, old: bool) -> None:
        self._old = old

    def cuDeviceGet(self, device: Any, ordinal: int) -> int:  # noqa: N802 - the driver's name
        device._obj.value = 70 + ordinal
        return 0

    def cuGetErrorName(self, code: int, name: Any) -> int:  # noqa: N802 - the driver's name
        name._obj.value = b"CUDA_ERROR_INVALID_VALUE"
        return 0

    def cuDeviceGetAttribute(  # noqa: N802 - the driver's name
        self, value: Any, attribute: int, device: ctypes.c_int
    ) -> int:
        assert attribute == MPS_ENABLED
        value._obj.value = int(device.value == 71)
        return 1 if self._old else 0  # CUDA_ERROR_INVALID_VALUE: it knows no such attribute


@pytest.mark.parametrize("old", [False, True])
def test_a_gpu_that_mps_shares_is_named(old: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "driver", lambda: Driver(old))
    monkeypatch.setattr(storage, "drives_cuda", lambda: True)
    segments = [
        SimpleNamespace(
            device_name=f"H100 (cuda:{number})",
            data=SimpleNamespace(device=SimpleNamespace(type="cuda", index=number)),
        )
        for number in (0, 1, 1)
    ]
    facts = provenance.provenance(segments)  # type: ignore[arg-type]
    assert facts.get("mps") == (None if old else "H100 (cuda:1)")
    said = str(of_class(ikp.Trace, decode([], {}, facts)).stats())
    assert ("H100 (cuda:1): shared by MPS" in said) is not old
