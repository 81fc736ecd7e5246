"""What a trace says of its making."""

from __future__ import annotations

import platform
import sys
import time

from ikp import registry
from ikp.core import abi
from ikp.core.segment import Segment
from ikp.version import __version__


def provenance(segments: list[Segment]) -> dict[str, str]:
    """Return what recorded the segments: program, host, devices and versions."""
    from importlib.metadata import PackageNotFoundError, version

    facts = {
        "ikp": __version__,
        "abi": str(abi.ABI_VERSION),
        "python": platform.python_version(),
        "host": platform.platform(),
        "command": " ".join(sys.argv)[:1000],
        "recorded": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "devices": ", ".join(sorted({segment.device_name for segment in segments})),
    }
    for package in (*registry.distributions(), "torch"):
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            continue
    return facts
