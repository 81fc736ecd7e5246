"""Switches for the whole process: the environment's kill switch, and export on and off."""

from __future__ import annotations

import os

KILL_SWITCH = "IKP"
"""``IKP=0`` in the environment: every buffer is None, kernels compile as if ikp were not there."""

_state = {"export": True}


def enabled() -> bool:
    """Return whether the environment lets ikp record."""
    return os.environ.get(KILL_SWITCH, "1").strip().lower() not in {"0", "off", "false", "no"}


def set_export(on: bool) -> None:
    """Write trace files at the end of sessions, or don't; recording goes on either way."""
    _state["export"] = bool(on)


def exporting() -> bool:
    """Return whether sessions write their trace files."""
    return _state["export"]
