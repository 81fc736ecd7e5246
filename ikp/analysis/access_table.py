"""JSON and table of address probes: what each access costs; in the table, largest excess first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import PurePath
from typing import Any, Final, TypedDict

from ikp.core.run_figures import (
    ADDRESSES,
    NO_ADDRESSES,
    AccessFigures,
    AddressFigures,
    read_addresses,
)
from ikp.json_schema import headed
from ikp.terminal import Column, Line, Sheet, lay_out, printable, shortened

VERSION: Final = 1
"""Version of the JSON of ``ikp stats --addresses``."""
_INDENT: Final = "  "
_COLUMNS: Final = (
    Column("access", name=True),
    Column("range", name=True),
    Column("count", spare=6),
    Column("lanes"),
    Column("cost"),
    Column("least"),
    Column("same", spare=1),
    Column("reuse", spare=2),
    Column("blocks", spare=4),
    Column("stride", spare=3),
    Column("executed", spare=5),
)
_NOTE: Final = (
    "count: instructions of one line and range whose figures are alike. cost: sectors of 32 bytes, "
    "or wavefronts of shared memory, of one request of a warp; least: how few the same lanes could "
    "do with. same: the most lanes with one address. reuse: how often a block asks for one sector "
    "or word; blocks: how many of the sampled blocks do. stride: bytes from lane to lane. "
    "executed: by the lanes of the sampled warps."
)


@dataclass(frozen=True, slots=True)
class AccessTable:
    """The figures of a trace's kernels: ``print`` shows a table, ``to_dict`` is for programs."""

    kernels: Mapping[str, AddressFigures]  # by label
    refused: Mapping[str, str]  # label -> why there are no figures

    def to_dict(self) -> dict[str, Any]:
        """Return all figures as JSON's types."""
        return {
            "kernels": {label: asdict(each) for label, each in self.kernels.items()},
            "refused": dict(self.refused),
        }

    def __str__(self) -> str:
        return self.__rich__().text()

    def __rich__(self) -> Sheet:
        return Sheet(partial(_lines, self))


class FileJson(TypedDict):
    """The figures of one file as JSON."""

    file: str
    kernels: dict[str, AddressFigures]
    refused: dict[str, str]


class AddressesJson(TypedDict):
    """The JSON of ``ikp stats --addresses``, without the head."""

    tables: list[FileJson]


def addresses_document(tables: Iterable[tuple[str, AccessTable]]) -> dict[str, Any]:
    """Return the JSON of tables, each with the file that it is of."""
    found = [{"file": path, **table.to_dict()} for path, table in tables]
    return headed("addresses", VERSION, {"tables": found})


def access_table(provenance: Mapping[str, str]) -> AccessTable:
    """Return the figures in a trace's provenance."""
    labels = [key.removeprefix(ADDRESSES) for key in provenance if key.startswith(ADDRESSES)]
    found = {label: read_addresses(provenance, label) for label in labels}
    refused = {
        key.removeprefix(NO_ADDRESSES): why
        for key, why in provenance.items()
        if key.startswith(NO_ADDRESSES)
    }
    return AccessTable({k: v for k, v in found.items() if v is not None}, refused)


def excess(each: AccessFigures) -> float:
    """Return what all sampled requests of an access took beyond the least."""
    if not each.requests or not each.active:
        return 0.0
    return ((each.cost or 0) - (each.least or 0)) * each.executed / each.active


def short_line(each: AccessFigures) -> str:
    """Return the source line of an access as ``"matmul.py:93"``; "" where it is not known."""
    return PurePath(each.line).name


def _lines(table: AccessTable, wide: int | None) -> Iterator[Line]:
    for label, found in table.kernels.items():
        yield from _of_kernel(label, found, wide)
    for label, why in table.refused.items():
        yield f"{shortened(label)}: no addresses: {printable(why)}", "yellow"
    if table.kernels:
        yield "", ""
        yield _NOTE, "dim"


def _of_kernel(label: str, found: AddressFigures, wide: int | None) -> Iterator[Line]:
    sampled = f"{found.blocks:,} of {found.of_blocks:,} blocks ({found.warps:,} warps)"
    yield f"{shortened(label)}: the addresses of {sampled}; {found.checked}", "bold"
    shown = sorted((e for e in found.accesses if e.executed), key=lambda e: -excess(e))
    inner = None if wide is None else wide - len(_INDENT)
    head, lines = lay_out(_COLUMNS, _rows(shown), inner)
    yield _INDENT + head, "bold"
    yield from ((_INDENT + line, "") for line in lines)
    if never := len(found.accesses) - len(shown):
        yield f"{_INDENT}and {never:,} that no sampled warp executed", "dim"
    if dropped := sum(each.dropped for each in found.accesses):
        share = dropped / sum(each.executed for each in found.accesses)
        yield f"{_INDENT}the addresses of {100 * share:.0f} % of the lanes had no room", "dim"
    for text, why in found.left_out:
        yield f"{_INDENT}left out: {printable(text)}: {printable(why)}", "yellow"


def _rows(shown: Sequence[AccessFigures]) -> list[list[str]]:
    """Return the rows; accesses of one line and range whose figures are alike are one."""
    alike: dict[tuple[str, ...], list[int]] = {}
    for each in shown:
        alike.setdefault(_cells(each), []).append(each.executed)
    return [
        [*cells[:2], str(len(executed)), *cells[2:], f"{sum(executed):,}"]
        for cells, executed in alike.items()
    ]


def _cells(each: AccessFigures) -> tuple[str, ...]:
    line = short_line(each)
    return (
        printable(f"{each.space} {each.kind} x {each.width} B{' @' if line else ''}{line}"),
        printable(each.range),
        *map(_number, (each.active, each.cost, each.least, each.same_address)),
        *map(_number, (each.reuse, each.blocks_share)),
        "" if each.stride is None else f"{each.stride:,}",
    )


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"
