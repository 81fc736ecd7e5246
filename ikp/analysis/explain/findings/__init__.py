"""``FINDINGS``, all findings of ``ikp explain``: functions from a launch's prepared columns.

Each file beside this one is a family of causes. To add a finding, write its function into the file
of its family, or a new one, and its name into the list here; its section of the manual is in
docs/reading-a-trace.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from ikp.analysis.explain.findings.contended_atomics import contended_atomics
from ikp.analysis.explain.findings.costly_lines import costly_lines
from ikp.analysis.explain.findings.excess_work import excess_work
from ikp.analysis.explain.findings.few_warps import occupancy_limits
from ikp.analysis.explain.findings.held_up_warps import divergence, held_up_warps, narrow_accesses
from ikp.analysis.explain.findings.idle_sms import idle_lanes, launch_gaps
from ikp.analysis.explain.findings.idle_threads import idle_threads, serial_threads
from ikp.analysis.explain.findings.kinds_of_memory import far_memory, local_memory
from ikp.analysis.explain.findings.late_messages import late_messages
from ikp.analysis.explain.findings.needless_instructions import (
    extra_instructions,
    serial_code,
)
from ikp.analysis.explain.findings.repeated_accesses import (
    needless_stores,
    repeated_loads,
)
from ikp.analysis.explain.findings.sizes_of_blocks import again_in_each_block, block_shapes
from ikp.analysis.explain.findings.slow_accesses import costly_accesses
from ikp.analysis.explain.findings.slow_instructions import slow_arithmetic
from ikp.analysis.explain.findings.slow_memory import slow_memory
from ikp.analysis.explain.findings.tensor_cores import idle_products, no_pipeline, small_tiles
from ikp.analysis.explain.findings.tiles import narrow_tiles, unstaged_loads
from ikp.analysis.explain.findings.uneven_blocks import uneven_blocks
from ikp.analysis.explain.findings.unused_hardware import (
    block_order,
    copy_issue,
    uncached_loads,
    unused_hardware,
)
from ikp.analysis.explain.findings.waits_for_others import (
    late_groups,
    waits_for_blocks,
)
from ikp.analysis.explain.findings.waits_within_blocks import (
    barrier_skew,
    lone_waits,
    needless_barriers,
)
from ikp.analysis.explain.findings.warp_wide_costs import warp_wide_costs
from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.verdict import Finding

FINDINGS: Final[tuple[Callable[[Prepared], Iterator[Finding]], ...]] = (
    idle_lanes,
    uneven_blocks,
    late_groups,
    barrier_skew,
    needless_barriers,
    idle_products,
    lone_waits,
    copy_issue,
    slow_memory,
    occupancy_limits,
    launch_gaps,
    local_memory,
    costly_accesses,
    contended_atomics,
    slow_arithmetic,
    repeated_loads,
    divergence,
    small_tiles,
    narrow_tiles,
    block_order,
    unstaged_loads,
    waits_for_blocks,
    late_messages,
    warp_wide_costs,
    idle_threads,
    excess_work,
    serial_threads,
    far_memory,
    extra_instructions,
    needless_stores,
    serial_code,
    unused_hardware,
    uncached_loads,
    held_up_warps,
    again_in_each_block,
    block_shapes,
    narrow_accesses,
    no_pipeline,
    costly_lines,
)
"""The functions that look for findings, in this order; a verdict ranks their findings."""
