"""Edits of a trace: functions from trace to trace, to select, cut, rename, join, connect, deduct.

They compose, since none changes the trace it is given::

    trace = ikp.edit.select(ikp.load("gemm.pftrace"), region="load*", sm=[0, 1])
    trace = ikp.edit.rename_launches(trace, {"gemm": "gemm, 4096 x 4096"})
    trace.save("loads.json")

``Trace.provenance["edited"]`` lists the edits, and so does every file written.
"""

from __future__ import annotations

from ikp.edit._across import connect, span
from ikp.edit._annotate import add_args
from ikp.edit._rename import (
    group_by,
    merge_regions,
    rename_launches,
    rename_regions,
    rename_warps,
)
from ikp.edit.deduct import deduct_overhead
from ikp.edit.join import concat, shift
from ikp.edit.select import cut, select

__all__ = [
    "add_args",
    "concat",
    "connect",
    "cut",
    "deduct_overhead",
    "group_by",
    "merge_regions",
    "rename_launches",
    "rename_regions",
    "rename_warps",
    "select",
    "shift",
    "span",
]
