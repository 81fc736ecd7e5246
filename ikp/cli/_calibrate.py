"""``ikp calibrate``: measures the cost of a record on this machine's GPU."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ikp.cli._options import format_option
from ikp.cli._plugins import aligned
from ikp.json_schema import headed
from ikp.printing import as_json
from ikp.session.options import CLOCKS

if TYPE_CHECKING:
    from ikp.core.overhead import Overhead


VERSION: Final = 1


@click.command("calibrate", short_help="What a record costs on this GPU.")
@click.option("--device", help="torch device. Without it: the current CUDA device.")
@click.option("--clock", type=click.Choice(CLOCKS), default=CLOCKS[0], show_default=True)
@click.option("--blocks", type=click.IntRange(1), default=1, show_default=True)
@click.option(
    "--warps", type=click.Choice(["1", "2", "4", "8", "16", "32"]), default="1", show_default=True
)
@click.option(
    "--cache",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A JSON file of measurements, which is searched first.",
)
@format_option("text", "json")
def command(
    device: str | None, clock: str, blocks: int, warps: str, cache: Path | None, output: str
) -> None:
    """Measure the cost of recording: small kernels with and without records run on the GPU.

    One warp by default, whose cost is the least; --blocks and --warps run more of them at once.
    """
    from ikp.calibration.calibrate import calibrate

    found = calibrate(device=device, clock=clock, blocks=blocks, warps=int(warps), cache=cache)
    content = headed("calibrate", VERSION, asdict(found))
    click.echo(as_json(content) if output == "json" else _as_text(found))


def _as_text(overhead: Overhead) -> str:
    """Return the figures as a table."""
    rows = [
        ("device", overhead.device),
        ("clock", f"{overhead.clock}, in {overhead.unit}"),
        ("run", f"{overhead.blocks} blocks of {overhead.warps} warps"),
        ("an empty range shows", str(overhead.empty_range)),
        ("a range adds to the one around it", str(overhead.range_inside)),
        ("... nested in each other", str(overhead.nested_inside)),
        ("an instant adds", str(overhead.instant_inside)),
        ("a range adds, and the warp has no other work", str(overhead.range_alone)),
        ("versions", overhead.versions),
    ]
    return aligned(rows)
