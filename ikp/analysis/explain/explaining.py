"""``trace.explain()``: one launch prepared, all findings computed and ranked, as a verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from ikp.analysis.explain import overview
from ikp.analysis.explain.capping import below_roofs
from ikp.analysis.explain.choosing_launch import Chosen, choose_launch
from ikp.analysis.explain.copied_runs import accesses_of, tried_of, with_tried
from ikp.analysis.explain.counts import kernel_shares, mix_of, serves_of, uncounted_of
from ikp.analysis.explain.critical import critical_path
from ikp.analysis.explain.deciding import decided
from ikp.analysis.explain.findings.barrier_skew import barrier_skew
from ikp.analysis.explain.findings.block_order import block_order
from ikp.analysis.explain.findings.bookkeeping import bookkeeping
from ikp.analysis.explain.findings.busy_lines import busy_lines
from ikp.analysis.explain.findings.contended_atomics import contended_atomics
from ikp.analysis.explain.findings.copy_issue import copy_issue
from ikp.analysis.explain.findings.costly_accesses import costly_accesses
from ikp.analysis.explain.findings.excess_work import excess_work
from ikp.analysis.explain.findings.extra_instructions import extra_instructions
from ikp.analysis.explain.findings.far_memory import far_memory
from ikp.analysis.explain.findings.idle_lanes import idle_lanes
from ikp.analysis.explain.findings.idle_products import idle_products
from ikp.analysis.explain.findings.idle_threads import idle_threads
from ikp.analysis.explain.findings.late_groups import connections, late_groups
from ikp.analysis.explain.findings.late_messages import late_messages
from ikp.analysis.explain.findings.launch_gaps import launch_gaps
from ikp.analysis.explain.findings.local_memory import local_memory
from ikp.analysis.explain.findings.lone_waits import lone_waits
from ikp.analysis.explain.findings.missed_caches import missed_caches
from ikp.analysis.explain.findings.needless_barriers import needless_barriers
from ikp.analysis.explain.findings.needless_stores import needless_stores
from ikp.analysis.explain.findings.occupancy_limits import occupancy_limits
from ikp.analysis.explain.findings.parted_lanes import divergence
from ikp.analysis.explain.findings.repeated_loads import repeated_loads
from ikp.analysis.explain.findings.serial_code import serial_code
from ikp.analysis.explain.findings.serial_threads import serial_threads
from ikp.analysis.explain.findings.slow_arithmetic import slow_arithmetic
from ikp.analysis.explain.findings.slow_memory import slow_memory
from ikp.analysis.explain.findings.small_tiles import small_tiles
from ikp.analysis.explain.findings.uneven_blocks import uneven_blocks
from ikp.analysis.explain.findings.unstaged_loads import unstaged_loads
from ikp.analysis.explain.findings.unused_hardware import unused_hardware
from ikp.analysis.explain.findings.waits_for_blocks import waits_for_blocks
from ikp.analysis.explain.findings.warp_wide_costs import warp_wide_costs
from ikp.analysis.explain.nesting import tree
from ikp.analysis.explain.places import with_lines
from ikp.analysis.explain.prepared import Prepared, prepare
from ikp.analysis.explain.roofs import roofs
from ikp.analysis.explain.stakes import worth
from ikp.analysis.explain.turns import phases
from ikp.analysis.explain.unknowns import has_times, nothing_recorded, too_long, unknowns
from ikp.analysis.explain.use_of_hardware import use_of_hardware, with_rates
from ikp.analysis.explain.verdict import Finding, Verdict

if TYPE_CHECKING:
    from ikp.core.trace import Trace
    from ikp.patterns import Names

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
    missed_caches,
    bookkeeping,
)
"""The functions that look for findings, in this order; a verdict ranks their findings."""


def explain(trace: Trace, launch: Names | int | None = None) -> Verdict:
    """Return what takes a kernel's time, ranked by what a change could win at most.

    Args:
        trace: the trace, whole.
        launch: a label, as a pattern, or a launch's number in the trace. Without it, the label is
            taken whose launches took longest in all; of a label, the launch of median duration.

    Raises:
        UsageError: ``launch`` names none.
    """
    return explained(trace, launch)[0]


def explained(trace: Trace, launch: Names | int | None = None) -> tuple[Verdict, Prepared | None]:
    """Return :func:`explain`'s verdict, and the launch that it is about; None where there is none.

    Raises:
        UsageError: ``launch`` names none.
    """
    chosen = choose_launch(trace, launch)
    if chosen is None:
        return Verdict(None, unknown=tuple(nothing_recorded(trace))), None
    prepared = prepare(trace, chosen.index)
    if not prepared.fits_one_axis:
        return Verdict(None, unknown=(too_long(prepared),)), None
    return _verdict(trace, chosen, prepared), prepared


def _verdict(trace: Trace, chosen: Chosen, prepared: Prepared) -> Verdict:
    time, free = overview.doing(prepared)
    joined, tried = tuple(connections(prepared)), tried_of(prepared)
    causes, symptoms = decided(with_tried(_found(prepared), tried))
    return Verdict(
        launch=overview.launched(prepared, chosen),
        unknown=tuple(unknowns(prepared, chosen)),
        time=time,
        in_no_range_share=free,
        groups=tuple(overview.groups(prepared)),
        regions=tuple(with_rates(prepared, tuple(overview.region_uses(prepared)))),
        lanes=overview.lanes_of(prepared, prepared.lanes),
        findings=causes,
        symptoms=symptoms,
        tree=tuple(tree(prepared)),
        phases=phases(prepared),
        critical_path=critical_path(prepared, joined),
        hardware=use_of_hardware(prepared) if prepared.on_gpu else None,
        kernels=kernel_shares(trace),
        roofs=roofs(prepared) if prepared.on_gpu else (),
        mix=mix_of(prepared),
        uncounted=uncounted_of(prepared),
        serves=serves_of(prepared),
        accesses=accesses_of(prepared),
        tried=tried,
        connected=tuple(one.told(prepared) for one in joined),
    )


def _found(launch: Prepared) -> list[Finding]:
    """Return the findings, the most time at stake first; none where times are not a GPU's."""
    if not has_times(launch):
        return []
    found = [with_lines(launch, one) for look in FINDINGS for one in look(launch)]
    # What no cause explains has a place at least.
    kept = below_roofs(launch, found) or below_roofs(launch, list(busy_lines(launch)))
    return sorted(kept, key=lambda one: (-worth(one), one.id))
