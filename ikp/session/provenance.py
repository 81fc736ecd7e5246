"""Provenance of a trace: the program, its host, the devices, and versions of packages."""

from __future__ import annotations

import os
import platform
import sys
import time
from functools import cache
from pathlib import Path

from ikp import registry
from ikp.core import abi
from ikp.core.host_clock import BOOT
from ikp.core.host_trace import MONOTONIC
from ikp.core.segment import Segment
from ikp.paths import boot, shown
from ikp.session.device import device_of
from ikp.session.storage import shared_by_mps
from ikp.version import __version__


def provenance(segments: list[Segment]) -> dict[str, str]:
    """Return the provenance of a trace: program, host, devices and versions."""
    from importlib.metadata import PackageNotFoundError

    devices = {each.device_name: device_of(each.data.device) for each in segments}
    facts = {
        "ikp": __version__,
        "abi": str(abi.ABI_VERSION),
        "python": platform.python_version(),
        "host": _host(),
        "command": program_name(),
        BOOT: boot(),
        MONOTONIC: str(time.time_ns() - time.monotonic_ns()),
        "recorded": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "devices": ", ".join(sorted(devices)),
    }
    if shared := [name for name, device in devices.items() if shared_by_mps(device)]:
        facts["mps"] = ", ".join(sorted(shared))
    for package in (*registry.distributions(), "torch"):
        try:
            facts[package] = _version(package)
        except PackageNotFoundError:
            continue
    return facts


def _host() -> str:
    """Return ``platform.platform()``, which starts ``uname -p`` as a child of the program."""
    system, libc = os.uname(), "".join(platform.libc_ver())
    name = f"{system.sysname}-{system.release}-{system.machine}"
    return f"{name}-with-{libc}" if libc else name


def program_name() -> str:
    """Return the program: a script's name, or ``-m module``. Arguments may hold keys and tokens."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return f"-m {spec.name.removesuffix('.__main__')}"
    return shown(Path(sys.argv[0]).name if sys.argv else "")


@cache
def _version(package: str) -> str:
    """Return a package's version; cached, as finding it takes half a millisecond per session."""
    from importlib.metadata import version

    return version(package)
