"""``trace.explain()``: one launch prepared, all findings computed and ranked, as a verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ikp.analysis.explain import overview
from ikp.analysis.explain.connections import critical_path
from ikp.analysis.explain.copied_runs import accesses_of, tried_of, with_tried
from ikp.analysis.explain.findings import FINDINGS
from ikp.analysis.explain.findings.needless_instructions import busy_lines
from ikp.analysis.explain.findings.waits_for_others import connections
from ikp.analysis.explain.nesting import tree
from ikp.analysis.explain.overview import (
    Chosen,
    choose_launch,
    kernel_shares,
    mix_of,
    phases,
    serves_of,
    uncounted_of,
)
from ikp.analysis.explain.places import hot_code, with_line_of_blocks, with_lines
from ikp.analysis.explain.prepared import Prepared, prepare
from ikp.analysis.explain.roofs import roofs
from ikp.analysis.explain.stakes import below_roofs, decided, worth
from ikp.analysis.explain.unknowns import has_times, nothing_recorded, too_long, unknowns
from ikp.analysis.explain.use_of_hardware import use_of_hardware, with_rates
from ikp.analysis.explain.verdict import Finding, Verdict

if TYPE_CHECKING:
    from ikp.core.trace import Trace
    from ikp.patterns import Names


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
    causes, symptoms = decided(
        with_tried(_found(prepared), tried), owns_layouts=prepared.launch.backend != "triton"
    )
    return Verdict(
        launch=overview.launched(prepared, chosen),
        unknown=tuple(unknowns(prepared, chosen)),
        time=time,
        in_no_range_share=free,
        groups=tuple(overview.groups(prepared)),
        regions=tuple(with_rates(prepared, tuple(overview.region_uses(prepared)))),
        lanes=overview.lanes_of(prepared, prepared.lanes),
        findings=tuple(with_line_of_blocks(prepared, one) for one in causes),
        symptoms=tuple(with_line_of_blocks(prepared, one) for one in symptoms),
        tree=tuple(tree(prepared)),
        phases=phases(prepared),
        critical_path=critical_path(prepared, joined),
        hardware=use_of_hardware(prepared) if prepared.on_gpu else None,
        kernels=kernel_shares(trace),
        roofs=roofs(prepared) if prepared.on_gpu else (),
        mix=mix_of(prepared),
        hot=hot_code(prepared),
        uncounted=uncounted_of(prepared),
        serves=serves_of(prepared),
        accesses=accesses_of(prepared),
        tried=tried,
        connected=tuple(one.line(prepared) for one in joined),
    )


def _found(launch: Prepared) -> list[Finding]:
    """Return the findings, the most time at stake first; none where times are not a GPU's."""
    if not has_times(launch):
        return []
    found = [with_lines(launch, one) for look in FINDINGS for one in look(launch)]
    # What no cause explains has a place at least.
    kept = below_roofs(launch, found) or below_roofs(launch, list(busy_lines(launch)))
    return sorted(kept, key=lambda one: (-worth(one), one.id))
