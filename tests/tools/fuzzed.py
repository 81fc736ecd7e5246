"""A suite and a recorder without a GPU, that do what their names say at one detail."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tools.fuzz_operators.cases import Case
from tools.fuzz_operators.recorder import Kernels

BAD = ("DIFFERS", "ERROR", "FAULT", "CRASH", "HANG", "refused", "none")


class State:
    """What a kernel would know: whether it is recorded, and with which detail."""

    detail = ""
    broken = False


state = State()


class Operators:
    """Operators that behave as their name says when they are recorded at detail ``waits``."""

    def __init__(self, names: Sequence[str], log: Path) -> None:
        self._names, self._log = names, log

    def prepare(self) -> None:
        """Import nothing."""

    def names(self) -> list[str]:
        return list(self._names)

    def cases(self, name: str) -> Iterator[Case]:
        for case in ("one", "two"):
            yield Case(case, lambda case=case: case, lambda made: self._run(name, made))

    def _run(self, name: str, case: str) -> list[Any]:
        with self._log.open("a") as file:
            file.write(f"{name} {case} {state.detail}\n")
        values = np.arange(5, dtype=np.float32)
        if name == "plain fails":
            raise ValueError("takes no such type")
        if name == "varies":
            values[0] = time.perf_counter_ns() % 2**20
        if state.detail == "waits" and case == "one":
            bad(name, values)
        return [values, "text"]

    def wait(self) -> None:
        if state.broken:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")


def bad(name: str, values: Any) -> None:
    match name:
        case "DIFFERS":
            values[3] += 1
        case "ERROR":
            raise ValueError("unexpected")
        case "FAULT":
            state.broken = True
        case "CRASH":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "HANG":
            time.sleep(600)


class Recorder:
    """Records nothing, and counts a kernel for each block."""

    def __init__(self, name: str = "") -> None:
        self._name = name
        self._detail = ""

    def begin(self, detail: str) -> None:
        self._detail = detail

    @contextmanager
    def recording(self, kernels: Kernels) -> Iterator[None]:
        state.detail = self._detail
        try:
            yield
        finally:
            state.detail = ""
            if self._name == "refused":
                kernels["libx.kernel"] = {"could not be marked: it is odd": 3}
            elif self._name != "none":
                kernels["libx.kernel"] = {"recorded": 2}

    def trace(self) -> dict[str, int]:
        return {"launches": 2, "kept": 4, "dropped": 0, "unfinished": 0}
