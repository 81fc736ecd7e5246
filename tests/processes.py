"""Starts the processes of tests/kernels/ranks.py, and reads what they found; torch for others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).parent / "kernels" / "ranks.py"
SLIM_TORCH = Path(__file__).parent / "running" / "slim_torch"
ROOT = Path(__file__).parents[1]
TIMEOUT_S = 300
"""The processes' own timeouts are shorter: this is for those that don't even start."""


def use_slim_torch(folder: Path) -> None:
    """Have Python programs that start in a folder import a torch that has little in it."""
    if not (folder / "torch").exists():
        (folder / "torch").symlink_to(SLIM_TORCH, target_is_directory=True)


def slim_environment(folder: Path) -> dict[str, str]:
    """Return the environment of programs that import such a torch, wherever they start."""
    use_slim_torch(folder)
    path = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), path or str(ROOT)])}


def run_ranks(backend: str, device: str, size: int, folder: Path) -> list[dict[str, Any]]:
    """Run all ranks at once, and return what each wrote to its JSON file.

    They get no ``RANK``: what is known of ranks comes from the process group.
    """
    kept = {name: value for name, value in os.environ.items() if name not in UNSET}
    interpret = {"TRITON_INTERPRET": "1"} if device == "cpu" else {}
    ranks = ["all"] if device == "cpu" else [*map(str, range(size))]  # CUDA may not be forked
    started = [
        subprocess.Popen(
            [sys.executable, PROGRAM, backend, device, rank, str(size), folder],
            env={**kept, **interpret, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in ranks
    ]
    try:
        for rank, process in zip(ranks, started, strict=True):
            output, _ = process.communicate(timeout=TIMEOUT_S)
            assert process.returncode == 0, f"rank {rank} of {size} failed:\n{output}"
    finally:
        for process in started:
            process.kill()
            process.communicate()
    return [json.loads((folder / f"{rank}.json").read_text("utf-8")) for rank in range(size)]


UNSET = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "IKP", "TRITON_INTERPRET"}
