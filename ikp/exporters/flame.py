"""Flame graphs: profiles for speedscope (``.speedscope.json``), and folded stacks (``.folded``).

Both hold, for each stack of ranges below a launch's label, the self time of the innermost range in
all warps together, in nanoseconds. The label's own time is that in no range.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from ikp.core.stacks import Stacks, stacks
from ikp.exporters.files import FileExporter
from ikp.terminal import printable
from ikp.version import __version__

if TYPE_CHECKING:
    from ikp.core.trace import Trace

SCHEMA: Final = "https://www.speedscope.app/file-format-schema.json"


class SpeedscopeExporter(FileExporter):
    """Writes files for https://www.speedscope.app: a profile for each launch label."""

    suffixes = (".speedscope.json", ".speedscope")

    def _put(self, trace: Trace, file: BinaryIO, name: str) -> None:
        tree = stacks(trace)
        frames = {name: number for number, name in enumerate(dict.fromkeys(tree.names))}
        paths: dict[int, dict[int, list[int]]] = {}  # of each label
        for node, path in _paths(tree).items():
            paths.setdefault(path[0], {})[node] = path
        content = {
            "$schema": SCHEMA,
            "name": name.rpartition("/")[2],
            "exporter": f"ikp {__version__}",
            "shared": {"frames": [{"name": name or "(no name)"} for name in frames]},
            "profiles": [_profile(tree, label, below, frames) for label, below in paths.items()],
        }
        file.write(json.dumps(content).encode())


def _profile(
    tree: Stacks, label: int, paths: dict[int, list[int]], frames: dict[str, int]
) -> dict[str, Any]:
    """Return one label's profile: its stacks, sorted by path, and the self time of each."""
    own = tree.own_ns
    chosen = [node for node in sorted(paths, key=paths.__getitem__) if own[node]]
    weights = [own[node] for node in chosen]
    return {
        "type": "sampled",
        "name": tree.names[label] or "(no name)",
        "unit": "nanoseconds",
        "startValue": 0,
        "endValue": sum(weights),
        "samples": [[frames[tree.names[each]] for each in paths[node]] for node in chosen],
        "weights": weights,
    }


class FoldedExporter(FileExporter):
    """Writes folded stacks, as flamegraph.pl, inferno and speedscope read them: a line each."""

    suffixes = (".folded",)

    def _put(self, trace: Trace, file: BinaryIO, _name: str) -> None:
        tree = stacks(trace)
        own, paths = tree.own_ns, _paths(tree)
        for node in sorted(paths, key=paths.__getitem__):
            if own[node]:
                stack = ";".join(_frame(tree.names[each]) for each in paths[node])
                file.write(f"{stack} {own[node]}\n".encode())


def _frame(name: str) -> str:
    """Return a name without the characters that separate frames and lines."""
    return printable(name).replace(";", ",").strip() or "(no name)"


def _paths(tree: Stacks) -> dict[int, list[int]]:
    """Return the nodes from the label down to each one."""
    paths: dict[int, list[int]] = {}
    for node, parent in enumerate(tree.parents):  # parents come first
        paths[node] = [*paths[parent], node] if parent >= 0 else [node]
    return paths
