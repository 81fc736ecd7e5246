"""Where NVIDIA's command-line tools are. It starts none, and imports nothing that does."""

from __future__ import annotations

import os
import shutil
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from ikp.errors import InspectError


@cache
def tool(name: str) -> Path:
    """Return the path of one of NVIDIA's tools: Triton's own, or the CUDA toolkit's.

    Raises:
        InspectError: there is none.
    """
    triton = find_spec("triton")
    folders = [Path(each) / "backends/nvidia/bin" for each in _locations(triton)]
    folders += [Path(os.environ[v]) / "bin" for v in ("CUDA_HOME", "CUDA_PATH") if v in os.environ]
    found = [folder / name for folder in folders if os.access(folder / name, os.X_OK)]
    on_path = shutil.which(name)
    if found or on_path:
        return found[0] if found else Path(str(on_path))
    raise InspectError(
        f"{name} was not found: not in Triton's package, nor in $CUDA_HOME/bin, nor on PATH. It "
        "comes with Triton (pip install triton) and with the CUDA toolkit."
    )


def _locations(spec: object) -> list[str]:
    return list(getattr(spec, "submodule_search_locations", None) or ())
