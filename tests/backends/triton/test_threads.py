"""Kernels that several threads use for the first time at once."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

from ikp.backends.triton.unedited._clones import kernel_clone, marks
from ikp.unedited.plan import plan
from tests.kernels import unedited
from tests.repo.tree import ROOT

pytestmark = pytest.mark.compiled


@pytest.mark.any_pins
def test_the_first_use_may_come_from_many_threads_at_once(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.backends.triton.cold_start"],
        check=False,
        env={**os.environ, "TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (ran.returncode, ran.stdout.strip()) == (0, ""), ran.stderr


def test_no_thread_finds_a_clone_that_another_is_still_making() -> None:
    threads = 4
    together = threading.Barrier(threads)
    found: list[int | str] = []

    def look(kernel: Any) -> None:
        together.wait()
        try:
            found.append(marks(kernel_clone(kernel, plan("ops"))))
        except Exception as error:  # noqa: BLE001 - shown below
            found.append(f"{type(error).__name__}: {error}")

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for step in range(10):
            kernel = unedited.made_in_a_function(step)
            started = [threading.Thread(target=look, args=(kernel,)) for _ in range(threads)]
            for thread in started:
                thread.start()
            for thread in started:
                thread.join()
    finally:
        sys.setswitchinterval(before)
    assert set(found) == {marks(kernel_clone(unedited.made_in_a_function(1), plan("ops")))}
