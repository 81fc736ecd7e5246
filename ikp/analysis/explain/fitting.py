"""A verdict cut to ``MOST_BYTES`` of JSON: less important entries go first, and are counted."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Final

from ikp.analysis.explain.verdict import MOST_BYTES, Finding, Verdict

_ORDER: Final = (
    ("symptoms", 4),
    ("tree", 6),
    ("regions", 6),
    ("critical_path", 4),
    ("connected", 2),
    ("unknown", 4),
    ("kernels", 3),
    ("tried", 6),
    ("accesses", 3),
    ("mix", 4),
    ("hot", 2),
    ("findings", 5),
    ("groups", 4),
    ("tree", 0),
    ("regions", 2),
    ("unknown", 1),
    ("symptoms", 1),
    ("findings", 2),
    ("critical_path", 0),
    ("connected", 0),
    ("groups", 0),
    ("regions", 0),
    ("hot", 1),
    ("time", 0),
    ("uncounted", 0),
    ("accesses", 0),
    ("tried", 1),
    ("mix", 0),
    ("kernels", 1),
    ("roofs", 2),
    ("symptoms", 0),
    ("hot", 0),
    ("findings", 1),
    ("unknown", 0),
    ("tried", 0),
)
"""Fields to cut, in order, and down to how many entries, until the verdict fits."""
_NAME: Final = 120
"""Characters that names keep where a verdict is still too long; sentences keep twice as many."""


def fitted(verdict: Verdict) -> Verdict:
    """Return a verdict whose JSON takes at most ``MOST_BYTES``."""
    for name, least in _ORDER:
        while size(verdict) > MOST_BYTES and len(getattr(verdict, name)) > least:
            verdict = _without_last(verdict, name)
    if size(verdict) > MOST_BYTES:
        verdict = _shortened(verdict)
    return verdict


def as_json(verdict: Verdict) -> str:
    """Return a verdict as JSON of at most ``MOST_BYTES``."""
    return json.dumps(fitted(verdict).to_dict(), ensure_ascii=False, separators=(",", ":"))


def size(verdict: Verdict) -> int:
    """Return how many bytes the JSON takes."""
    text = json.dumps(verdict.to_dict(), ensure_ascii=False, separators=(",", ":"))
    return len(text.encode("utf-8", "backslashreplace"))


def _without_last(verdict: Verdict, name: str) -> Verdict:
    left = {**verdict.left_out, name: verdict.left_out.get(name, 0) + 1}
    return replace(verdict, left_out=left, **{name: getattr(verdict, name)[:-1]})


def _shortened(verdict: Verdict) -> Verdict:
    """Cut names: kernels of C++ templates have some of thousands of characters."""
    launch = verdict.launch
    if launch is not None:
        others = launch.others[:2]
        launch = replace(
            launch,
            label=launch.label[:_NAME],
            device=launch.device[:_NAME],
            others=tuple((name[:_NAME], took) for name, took in others),
        )
    phases = verdict.phases
    if phases is not None:
        phases = replace(phases, iteration=phases.iteration[:_NAME])
    return replace(
        verdict,
        launch=launch,
        phases=phases,
        kernels=tuple(replace(one, label=one.label[:_NAME]) for one in verdict.kernels),
        findings=tuple(map(_short_finding, verdict.findings[:1])),
        left_out={**verdict.left_out, "characters": 1},
    )


def _short_finding(one: Finding) -> Finding:
    where = replace(
        one.where,
        regions=tuple(name[:_NAME] for name in one.where.regions[:2]),
        roles=tuple(name[:_NAME] for name in one.where.roles[:2]),
        lines=tuple(line[-_NAME:] for line in one.where.lines[:2]),
    )
    texts = {
        name: getattr(one, name)[: 2 * _NAME]
        for name in ("title", "what_if", "rationale", "suggestion")
    }
    return replace(
        one, where=where, number=replace(one.number, what=one.number.what[:_NAME]), **texts
    )
