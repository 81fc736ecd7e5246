"""The GPUs that a kernel could run on, their driver, and advice where there are none.

torch names the GPUs, or ``nvidia-smi`` where torch is not installed; the driver's version is from
``nvidia-smi``.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from importlib.util import find_spec

from ikp.children import TooLongError, run

NONE = (
    'none found: Triton kernels fail here ("0 active drivers"). To run them in Triton\'s CPU '
    "interpreter, set TRITON_INTERPRET=1 before Triton is imported"
)
_INTERPRETED = (
    "none found: Triton kernels run in Triton's CPU interpreter (TRITON_INTERPRET is set)"
)
UNUSED = "not used by Triton kernels: TRITON_INTERPRET is set, so its CPU interpreter runs them"
_YES = {"1", "true", "on", "yes", "y"}
"""Values of a variable that Triton takes as true."""
_LIMIT_S = 5.0


@dataclass(frozen=True, slots=True)
class GpusFound:
    """GPUs that a kernel could run on, and the driver.

    ``note`` says why this process can't use a GPU that the machine has; ``problems`` are errors of
    a broken torch.
    """

    names: tuple[str, ...] = ()
    driver: str | None = None
    note: str = ""
    problems: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """Return the GPUs in words, and the consequence for Triton kernels in this environment."""
        driver = f"driver {self.driver}" if self.driver else "driver unknown"
        lines = [f"{name} ({driver})" for name in self.names]
        if not lines:
            lines = [_INTERPRETED if interpreted() else NONE]
        elif interpreted():
            lines.append(UNUSED)
        return lines + ([self.note] if self.note else [])


def interpreted() -> bool:
    """Return whether the environment has Triton kernels run in Triton's CPU interpreter."""
    return os.environ.get("TRITON_INTERPRET", "").lower() in _YES


def find() -> GpusFound:
    """Return the GPUs that torch can use; without torch, those that ``nvidia-smi`` lists."""
    listed = _nvidia_smi()
    driver = listed[0][1] if listed else None
    if find_spec("torch") is None:
        return GpusFound(tuple(name for name, _ in listed), driver)
    try:
        names = _torch_names()
    except Exception as error:  # noqa: BLE001 - any error of a broken torch is reported
        return GpusFound(driver=driver, problems=(f"torch: {type(error).__name__}: {error}",))
    return GpusFound(names, driver, _note(names, listed))


def _torch_names() -> tuple[str, ...]:
    import torch

    if not torch.cuda.is_available():
        return ()
    return tuple(torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count()))


def _nvidia_smi() -> list[tuple[str, str]]:
    """Return name and driver version of each GPU; [] if ``nvidia-smi`` is not installed."""
    if shutil.which("nvidia-smi") is None:
        return []
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        done = run(query, _LIMIT_S)
    except (OSError, TooLongError):
        return []
    rows = [line.rpartition(", ") for line in done.out.splitlines() if not done.code]
    return [(name, driver) for name, _, driver in rows if name]


def _note(names: tuple[str, ...], listed: list[tuple[str, str]]) -> str:
    if names or not listed:
        return ""
    return (
        f"nvidia-smi lists {listed[0][0]}, but torch can't use it: a torch built without CUDA, "
        "CUDA_VISIBLE_DEVICES, or a driver too old for it"
    )
