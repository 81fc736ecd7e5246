"""A verdict as text of one screen: the launch, its time, the findings, what is not known; and as
HTML.

All text in the HTML, which notebooks show, is escaped.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from html import escape
from itertools import chain
from math import prod
from pathlib import PurePath
from typing import Final

from ikp.analysis.evidence import lost_records, plural
from ikp.analysis.explain.roofs import NEAR
from ikp.analysis.explain.verdict import (
    Finding,
    Hardware,
    HotCode,
    Lanes,
    Launched,
    Tried,
    Verdict,
)
from ikp.analysis.render import duration
from ikp.terminal import printable, shortened

_WIDE: Final = 100
_FINDINGS: Final = 5
_FIRST: Final = 2
_REGIONS: Final = 3
_SYMPTOMS: Final = 3
_ACCESSES: Final = 3
_TRIED: Final = 4
_SEVERAL: Final = 2
_KERNELS: Final = 4
_ROOFS: Final = 4
_ROOF: Final = 0.2
"""Share of a roof from which on it is shown."""
_NOT_KNOWN: Final = "Not known (--unknown says why): "
_LEAST: Final = 0.005
"""Shares below this are not shown."""
_RECORDING: Final = 0.05
"""Share of the warps' time from which on the cost of recording may be taken for the kernel's time.
"""
_MOSTLY: Final = 0.3
"""Share of the warps' time from which on a region is named though nothing was found in it."""


def as_text(verdict: Verdict, wide: int = _WIDE, *, unknown: bool = False) -> str:
    """Return the screen, of lines no longer than ``wide``.

    With ``unknown``, all that is not known, with the reason and what to record; else its names, in
    one line.
    """
    lines = [*launch_lines(verdict), "", *_findings(verdict, _FINDINGS), *_symptoms(verdict)]
    lines += [*_most(verdict), *_further(verdict)]
    every = unknown or verdict.launch is None  # then there is nothing else to say
    lines += _all_unknown(verdict) if every else _unknown(verdict, wide)
    wrapped = (_wrapped(line, wide) for line in lines)
    return "\n".join(wrapped).rstrip()


def short_text(verdict: Verdict, wide: int = _WIDE) -> str:
    """Return the launch, and its first findings, as lines no longer than ``wide``."""
    if verdict.launch is None:
        lines = [f"{one.what}: {one.rationale}" for one in verdict.unknown[:1]]
    else:
        lines = [*_launch(verdict.launch), *_findings(verdict, _FIRST)]
        lines += [] if verdict.findings else [*_symptoms(verdict)] or _longest(verdict)
    return "\n".join(_wrapped(line, wide) for line in lines)


def _head(verdict: Verdict) -> Iterator[str]:
    launch = verdict.launch
    if launch is None:
        yield "nothing to explain"
        return
    yield from _launch(launch)
    there = prod(launch.grid)
    among = f" of {there:,}" if launch.blocks_seen < there else ""
    yield (
        f"  {launch.blocks_seen:,}{among} blocks of {plural(launch.warps_per_block, 'warp')}"
        + (f" on {launch.sms} SMs" if launch.sms is not None else ", one after another on the CPU")
        + (
            f", {verdict.lanes.blocks_at_once} at once on each: {verdict.lanes.waves:.2f} waves"
            if verdict.lanes
            else ""
        )
    )
    if launch.blocks < launch.blocks_seen:
        yield f"  ranges of {launch.blocks:,} of {launch.blocks_seen:,} blocks"


def _launch(launch: Launched) -> Iterator[str]:
    """Yield what was lost of a launch; its label, its duration and its device."""
    if lost := lost_records(launch.dropped, launch.attempted, launch.unfinished):
        yield f"{lost}: what follows is of the others."
    among = ""
    if launch.launches > 1:
        among = (
            f" (launch {launch.index}, the median of {launch.launches}: {duration(launch.min_ns)} "
            f"to {duration(launch.max_ns)})"
        )
    yield (
        f"{shortened(launch.label)}: {duration(launch.duration_ns)} on {printable(launch.device)}"
        f"{among}"
    )


def _kernels(verdict: Verdict) -> Iterator[str]:
    """Yield the kernels of the trace and their shares of time, where there are several."""
    if len(verdict.kernels) < _SEVERAL:
        return
    shown = [
        f"{shortened(one.label)} {100 * one.share:.0f} % "
        f"({plural(one.launches, 'launch', 'launches')})"
        for one in verdict.kernels[:_KERNELS]
    ]
    more = len(verdict.kernels) - _KERNELS + verdict.left_out.get("kernels", 0)
    yield "  kernels: " + ", ".join(shown) + (f", and {more} more" if more > 0 else "")


def _counted(verdict: Verdict) -> Iterator[str]:
    """Yield the roofs that a launch is nearest to, and what its plain kernel keeps in memory."""
    near = [one for one in verdict.roofs if one.share >= _ROOF][:_ROOFS]
    if near:
        at = "at its roof, " if near[0].share >= NEAR else ""
        yield f"  counted work: {at}" + ", ".join(
            f"{one.name} {100 * one.share:.0f} %" for one in near
        )
    hardware = verdict.hardware
    if hardware is not None and hardware.local_bytes:
        yield (
            f"  {hardware.local_bytes:,} bytes of local memory for each thread, "
            f"{hardware.local_accesses:,} instructions that access it"
        )


def _slots(lanes: Lanes) -> str:
    """Return a line on what CTA slots did."""
    shares = {
        "in blocks": lanes.busy_share,
        "before the first": lanes.start_share,
        "between blocks": lanes.switch_share,
        "after the last": lanes.end_share,
    }
    said = (f"{100 * share:.1f} % {what}" for what, share in shares.items())
    return f"  CTA slots: {', '.join(said)}"


def _registers(hardware: Hardware | None) -> Iterator[str]:
    """Yield a line on registers where the copy with records has others than the plain kernel."""
    if hardware is not None and hardware.registers_recorded is not None:
        yield (
            f"  registers: {hardware.registers} for each thread, and "
            f"{hardware.registers_recorded} in the copy with records, which ran"
        )


def _time(verdict: Verdict) -> Iterator[str]:
    if verdict.lanes is not None:
        yield _slots(verdict.lanes)
    yield from _registers(verdict.hardware)
    shown = [one for one in verdict.time if one.share >= _LEAST]
    parts = [f"{100 * one.share:.1f} % {one.activity}" for one in shown]
    if verdict.in_no_range_share is not None:
        parts.append(f"{100 * verdict.in_no_range_share:.1f} % in no range")
    if parts:
        yield "  warps: " + ", ".join(parts)
    if verdict.launch is not None:
        yield from _costs(verdict.launch)
    if len(verdict.groups) > 1:
        yield "  " + "; ".join(
            f"{shortened(one.name)}: {100 * one.busy_share:.0f} % busy, "
            f"{100 * one.waiting_share:.0f} % waiting"
            for one in verdict.groups
        )


def _costs(launch: Launched) -> Iterator[str]:
    """Yield lines on what recording costs."""
    if launch.recording:
        yield f"  {launch.recording.sentence()}"
    most = launch.recording_share_at_most
    if most is not None and most >= _RECORDING:
        yield (
            f"  recording took up to {100 * most:.0f} % of the warps' time: most of it shows "
            "between ranges"
        )


def finding_lines(one: Finding) -> Iterator[str]:
    """Yield a finding's title, its bound, its place and its suggestion, a line each."""
    yield printable(one.title)
    yield f"{printable(one.what_if)} [{one.id}, {one.confidence}]"
    if one.tried is not None:
        yield f"tried: {_gained(one.tried)}"
    if looks := _where(one):
        yield f"look at {looks}"
    yield printable(one.suggestion)


def finding_text(one: Finding, wide: int = _WIDE) -> str:
    """Return a finding as lines no longer than ``wide``."""
    title, *rest = finding_lines(one)
    return "\n".join(_wrapped(line, wide) for line in (title, *(f"  {each}" for each in rest)))


def launch_lines(verdict: Verdict) -> list[str]:
    """Return the lines on the launch and its time, above the findings."""
    parts = _head(verdict), _kernels(verdict), _time(verdict), _counted(verdict)
    return [*chain(*parts)]


def _findings(verdict: Verdict, most: int) -> Iterator[str]:
    for place, one in enumerate(verdict.findings[:most], 1):
        title, *rest = finding_lines(one)
        yield f"{place}. {title}"
        yield from (f"   {line}" for line in rest)
    more = len(verdict.findings) - most
    if more > 0:
        yield f"   and {more} more, with less at stake"
    if not verdict.findings and verdict.launch is not None:
        if verdict.launch.sms is None:
            yield "No cause is looked for: the times are the interpreter's, on the CPU."
            return
        yield "No cause was found that a change could win 3 % by, as far as is known."


def _symptoms(verdict: Verdict) -> Iterator[str]:
    """Yield where time goes, too, where nothing shows that a change would win it."""
    if verdict.symptoms:
        yield "Time goes here, too; nothing shows that a change would win it:"
    for one in verdict.symptoms[:_SYMPTOMS]:
        lines = f" ({', '.join(PurePath(line).name for line in one.where.lines[:1])})"
        yield f"   {printable(one.title)} [{one.id}]{printable(lines) if one.where.lines else ''}"
    if len(verdict.symptoms) > _SYMPTOMS:
        yield f"   and {len(verdict.symptoms) - _SYMPTOMS} more (--format json)"


def _further(verdict: Verdict) -> Iterator[str]:
    """Yield costly accesses, and the bounds that were tried beside no finding shown."""
    yield from _costly(verdict)
    shown = [one.tried for one in verdict.findings[:_FINDINGS]]
    rest = [each for each in verdict.tried if each not in shown]
    if rest:
        yield ""
        yield "Tried without (the results of such copies are not valid):"
    for one in rest[:_TRIED]:
        yield f"  {_gained(one)}"
    if len(rest) > _TRIED:
        yield f"  and {len(rest) - _TRIED} more (--format json)"


def _costly(verdict: Verdict) -> Iterator[str]:
    if verdict.accesses:
        yield ""
        yield "Costly requests, by their lanes' addresses:"
    for each in verdict.accesses[:_ACCESSES]:
        unit = "wavefronts" if each.what.startswith("shared") else "sectors"
        same = f", {each.same_address:.0f} of one address" if each.same_address >= _SEVERAL else ""
        yield (
            f"  {printable(each.what)} of {each.width} B{_at(each.line)}: {each.cost:.1f} {unit}, "
            f"{each.least:.1f} would do; {each.active:.0f} lanes{same}"
        )


def _gained(tried: Tried) -> str:
    what = f"the {tried.kind}{_at(tried.line)}"
    if tried.gain_share is None:
        return f"{what}: not tried: {printable(tried.rationale)}"
    gain, spread = 100 * tried.gain_share, 100 * (tried.spread or 0)
    return f"{what} {tried.how}: {gain:.1f} % less time (+-{spread:.1f}), measured"


def _at(line: str) -> str:
    return f" @{printable(PurePath(line).name)}" if line else ""


def _most(verdict: Verdict) -> Iterator[str]:
    """Yield the region with the most self time where nothing was found, if its share is large."""
    if verdict.findings or verdict.launch is None or verdict.launch.sms is None:
        return
    first = max(verdict.regions, key=lambda one: one.self_share, default=None)
    if first is not None and first.self_share >= _MOSTLY:
        yield (
            f"   {100 * first.self_share:.0f} % of the warps' time is in {shortened(first.name)} "
            f"({first.activity})"
        )
        yield from (line for one in verdict.hot[:1] for line in _issues(one))


def _issues(one: HotCode) -> Iterator[str]:
    """Yield a line on what a range's own code issues: by unit, and by source line."""
    units = ", ".join(f"{count:.0f} {unit}" for unit, count in one.units)
    lines = ", ".join(f"{printable(line)} ({count:.0f})" for line, count in one.lines)
    most = f"; most are of {lines}" if lines else ""
    yield (
        f"   {shortened(one.region)} issues {one.count:.0f} instructions an {one.each}: "
        f"{units}{most}"
    )


def _longest(verdict: Verdict) -> Iterator[str]:
    """Yield the regions with the most self time: what there is to see where nothing was found."""
    most = sorted(verdict.regions, key=lambda one: -one.self_share)
    for one in most[:_REGIONS]:
        yield (
            f"   {100 * one.self_share:.0f} % {shortened(one.name)}: {one.count:,} of "
            f"{duration(one.p50_ns)}"
        )


def _where(one: Finding) -> str:
    where, parts = one.where, [*one.where.lines[:1]]
    if where.warps:
        block, warp = where.warps[0]
        parts.append(f"block {block} warp {warp}")
    if where.sms:
        parts.append(f"SM {where.sms[0]}")
    if where.window_ns:
        low, high = where.window_ns
        parts.append(f"from {duration(low)} to {duration(high)} of the launch")
    return ", ".join(parts)


def _unknown(verdict: Verdict, wide: int) -> Iterator[str]:
    """Yield one line with the names of what is not known, as many as fit, the gravest first."""
    names = [printable(one.what) for one in verdict.unknown]
    if not names:
        return
    lines = [f"{_NOT_KNOWN}{', '.join(names)}", f"{_NOT_KNOWN}{plural(len(names), 'fact')}"]
    lines[1:1] = [
        f"{_NOT_KNOWN}{', '.join(names[:shown])}, and {len(names) - shown} more"
        for shown in range(len(names) - 1, 0, -1)
    ]
    yield ""
    yield next((line for line in lines if len(line) <= wide), lines[-1])


def _all_unknown(verdict: Verdict) -> Iterator[str]:
    """Yield all that is not known, each with the reason, and with what to record."""
    if verdict.unknown:
        yield from ("", "Not known:")
    for one in verdict.unknown:
        mark = f" {one.mark}" if one.mark else ""
        yield printable(f"  {one.what}: {one.rationale}{mark}")


def _wrapped(line: str, wide: int) -> str:
    indent = " " * (len(line) - len(line.lstrip()))
    return textwrap.fill(
        line.strip(),
        wide,
        initial_indent=indent,
        subsequent_indent=indent + "  ",
        break_long_words=True,
        break_on_hyphens=False,
    )


def verdict_html(verdict: Verdict) -> str:
    """Return the launch, its findings as a list, and what is not known, folded."""
    head, *rest = launch_lines(verdict)
    parts = [f"<p><b>{escape(head)}</b>{_small(rest)}</p>"]
    found = "\n".join(f"<li>{finding_html(one)}</li>" for one in verdict.findings)
    parts.append(f"<ol>\n{found}\n</ol>" if found else "<p>No finding.</p>")
    if verdict.unknown:
        lines = (f"{one.what}: {one.rationale} {one.mark}".strip() for one in verdict.unknown)
        items = "".join(f"<li>{escape(printable(line))}</li>" for line in lines)
        parts.append(f"<details><summary>Not known</summary><ul>{items}</ul></details>")
    return "\n".join(parts)


def finding_html(one: Finding) -> str:
    """Return a finding: its title, and below it its bound, its place and its suggestion."""
    title, *rest = finding_lines(one)
    return f"<b>{escape(title)}</b>{_small(rest)}"


def _small(lines: list[str]) -> str:
    return "".join(f"<br><small>{escape(line.strip())}</small>" for line in lines)
