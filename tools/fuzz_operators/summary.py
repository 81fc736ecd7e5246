"""Tables of results: outcomes, launches by library, refusals by reason, launches ikp missed."""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tools.fuzz_operators.outcomes import ALL, COULD_NOT, DEFECTS, PLAIN, VARIES
from tools.fuzz_operators.recorder import RECORDED

Operator = dict[str, Any]
"""One line of a results file."""

_LAUNCHES = "all"
_REASON = 160
_NAME = 70


def read(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """Return the operators of results files; a line that a kill has cut off is left out."""
    found: dict[str, dict[str, Any]] = {}
    for path in paths:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        for line in filter(None, text.splitlines()):
            try:
                each = json.loads(line)
            except json.JSONDecodeError:
                print(f"{path}: a line is cut off, and left out", file=sys.stderr)
                continue
            found[each["operator"]] = each
    return list(found.values())


def summary(operators: Sequence[Operator]) -> str:
    """Return all tables."""
    parts = (
        _totals(operators),
        _outcomes(operators),
        _libraries(operators),
        _refusals(operators),
        _hidden(operators),
        _traces(operators),
        _defects(operators),
    )
    return "\n\n".join("\n".join(part) for part in parts if part)


def _totals(operators: Sequence[Operator]) -> list[str]:
    seconds = sum(each["seconds"] for each in operators)
    processes = sum(each["processes"] for each in operators)
    return [f"{len(operators)} operators, {processes} processes, {seconds:,.0f} s of processes"]


def _results(operators: Iterable[Operator]) -> Iterator[tuple[str, dict[str, Any]]]:
    for each in operators:
        for result in each["results"]:
            yield each["operator"], result


def _outcomes(operators: Sequence[Operator]) -> list[str]:
    """Count cases by outcome and detail."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for _, result in _results(operators):
        counts[result["detail"]][result["outcome"]] += 1
    shown = [each for each in ALL if any(counts[detail][each] for detail in counts)]
    rows = [[each, *(f"{counts[detail][each]:,}" for detail in counts)] for each in shown]
    return _table(["cases", *counts], rows)


def _kernels(operators: Iterable[Operator]) -> Iterator[tuple[str, str, str, int]]:
    """Yield the detail, name, reason and launches of each kernel of each case."""
    for _, result in _results(operators):
        for name, reasons in result.get("kernels", {}).items():
            for reason, count in reasons.items():
                yield result["detail"], name, reason, count


def _libraries(operators: Sequence[Operator]) -> list[str]:
    """Count launches and kernels, and those refused, by what holds them."""
    launches: dict[str, Counter[str]] = defaultdict(Counter)
    kernels: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for _, name, reason, count in _kernels(operators):
        library = name.partition(".")[0] if "." in name else "unknown"
        kind = "refused" if reason.startswith(COULD_NOT) else reason
        kind = kind if kind in (RECORDED, "refused") else "otherwise plain"
        for place in (library, _LAUNCHES):
            launches[place][kind] += count
            kernels[place][kind].add(name)
    rows = [
        [
            place,
            *(f"{launches[place][kind]:,}" for kind in (RECORDED, "refused", "otherwise plain")),
            f"{launches[place]['refused'] / launches[place].total():.2%}",
            str(len(set().union(*kernels[place].values()))),
            str(len(kernels[place]["refused"])),
        ]
        for place in sorted(launches, key=lambda each: -launches[each].total())
    ]
    head = ["launches of", "recorded", "refused", "otherwise plain", "refused", "names"]
    return _table([*head, "with refusals"], rows) if rows else []


def _refusals(operators: Sequence[Operator]) -> list[str]:
    """List each reason for which a kernel ran plain, with its kernels and details."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    details: dict[str, set[str]] = defaultdict(set)
    for detail, name, reason, count in _kernels(operators):
        if reason != RECORDED:
            found[reason][name] += count
            details[reason].add(detail)
    lines = []
    for reason, names in sorted(found.items(), key=lambda each: -each[1].total()):
        where = ", ".join(sorted(details[reason]))
        lines.append(f"{names.total():,} launches of {len(names)} names at {where}: {reason}")
        lines += [f"    {count:,} {name[:_NAME]}" for name, count in names.most_common(4)]
    return ["Not recorded, by reason", *lines] if lines else []


def _hidden(operators: Sequence[Operator]) -> list[str]:
    """Say which launches CUPTI counted, and no hook of ikp saw."""
    names, uncounted, without = Counter[str](), 0, list[str]()
    for each in operators:
        if each["counted"] is None:
            uncounted += 1
            continue
        seen = _seen(each)
        missing = {
            name: count - seen[name]
            for name, count in each["counted"].items()
            if count > seen[name]
        }
        names.update(missing)
        if not seen and not each["counted"] and _ran(each):
            without.append(each["operator"])
    lines = [f"{names.total():,} launches of {len(names)} names were never seen by ikp"]
    lines += [f"    {count:,} {name[:_NAME]}" for name, count in names.most_common(30)]
    lines.append(f"{len(without)} operators launch nothing; of {uncounted} it was not counted")
    return lines


def _ran(operator: Operator) -> bool:
    return any(each["detail"] != PLAIN for each in operator["results"])


def _seen(operator: Operator) -> Counter[str]:
    """Return what ikp saw of an operator's launches, at the detail at which that was most."""
    by_detail: dict[str, Counter[str]] = defaultdict(Counter)
    for detail, name, _, count in _kernels([operator]):
        by_detail[detail][name.partition(".")[2]] += count
    most = Counter[str]()
    for each in by_detail.values():
        most |= each
    return most


def _traces(operators: Sequence[Operator]) -> list[str]:
    """Sum what was decoded."""
    sums: dict[str, Counter[str]] = defaultdict(Counter)
    for each in operators:
        for detail, found in each["traces"].items():
            sums[detail].update(found)
    rows = [[detail, *(f"{count:,}" for count in found.values())] for detail, found in sums.items()]
    return _table(["decoded", *next(iter(sums.values()))], rows) if sums else []


def _defects(operators: Sequence[Operator]) -> list[str]:
    """List each defect, and each difference that may be one."""
    found = [(name, each) for name, each in _results(operators) if each["outcome"] in DEFECTS]
    varies = [
        (name, each)
        for name, each in _results(operators)
        if each["outcome"] == VARIES and each["detail"] != PLAIN
    ]
    lines = [f"{len(found)} DEFECTS", *map(_line, found)]
    if varies:
        lines += ["", f"{len(varies)} differ as plain runs do", *map(_line, varies)]
    return lines


def _line(found: tuple[str, dict[str, Any]]) -> str:
    name, each = found
    what = " ".join(each["what"].split())[:_REASON]
    return f"    {each['outcome']}: {name}, {each['case']}, {each['detail']}: {what}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[at]) for row in [head, *rows]) for at in range(len(head))]

    def line(row: Sequence[str]) -> str:
        first, *rest = row
        cells = [first.ljust(widths[0])]
        cells += [each.rjust(width) for each, width in zip(rest, widths[1:], strict=True)]
        return "  ".join(cells).rstrip()

    return [line(head), *map(line, rows)]
