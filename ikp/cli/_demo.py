"""``ikp demo``: profiles a flash-attention kernel in Triton, on a GPU or in the interpreter.

With ``--recorded`` it shows a trace of a real kernel that ships with ikp, on any machine; with
``--program`` it writes an ordinary Triton program, to be run under ``ikp run``.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ikp.cli._explain import print_verdict
from ikp.cli._gpu import interpreted
from ikp.cli._reading import next_command, read_trace
from ikp.errors import UsageError
from ikp.paths import checked_target, replacing
from ikp.registry import check_target
from ikp.session.current import KILL_SWITCH, enabled
from ikp.terminal import printable, show
from ikp.viewer.ui import UI

if TYPE_CHECKING:
    import torch

    from ikp.trace import Trace


PROGRAM: Final = Path(__file__).parent / "programs" / "attention.py"
"""Causal attention, whose blocks take unevenly long. Nothing of ikp is in it."""


def write_program(path: Path, *, force: bool) -> None:
    """Write the program and print the command to type next; an equal file is left as it is.

    Raises:
        ExportError: another file has that name and ``force`` is false, or it can't be written.
    """
    content = PROGRAM.read_bytes()
    if not (path.is_file() and path.read_bytes() == content):
        with replacing(path, force=force) as file:
            file.write(content)
    click.echo(f"wrote {printable(str(path))}: causal attention in Triton.", err=True)
    if missing := [each for each in ("torch", "triton") if find_spec(each) is None]:
        lacking = " and ".join(missing)
        click.echo(f"It needs {lacking}: pip install 'ikp[triton]'", err=True)
    next_command("ikp", "run", "--detail", "ops", path, why="what takes its time, and why")


_FOLDER: Final = Path(__file__).parent / "recorded"
TRACE: Final = _FOLDER / "attention.pftrace"
"""``ikp run --detail ops`` on an H100: the first warp of each block, of one launch of three."""
BEFORE: Final = _FOLDER / "before.pftrace"
"""Three launches of the same kernel, with the kernel's own range alone."""
AFTER: Final = _FOLDER / "after.pftrace"
"""Three launches of the kernel with long blocks first: two lines were changed."""
_ROWS: Final = 8
_KERNEL: Final = (
    "the causal attention of flash-linear-attention 0.5.2, as it is: the first warp\nof each block"
)


def show_recorded(path: Path, *, force: bool) -> None:
    """Print the recorded kernel's table and verdict, and what the advised change did; write files.

    Args:
        path: of the trace. Beside it are written its page, and traces from before and after the
            change.
        force: whether files of these names are replaced.

    Raises:
        ExportError: a file exists and ``force`` is false, or can't be written.
    """
    from ikp.analysis.diff.compare import diff

    page = path.with_name(f"{path.stem}.html")
    before, after = (path.with_name(f"{path.stem}-{each.name}") for each in (BEFORE, AFTER))
    copies = {path: TRACE, before: BEFORE, after: AFTER}
    for each in copies:
        check_target(each, force)
    checked_target(page, force)
    trace = read_trace(TRACE)
    facts = trace.provenance
    where = f"recorded on {facts['devices']}, {facts['recorded'][:10]}:"
    click.echo(f"{where}\n{_KERNEL}.", err=True)
    show(trace.stats().top(_ROWS, "self"))
    click.echo()
    print_verdict(trace.explain())
    click.echo("\nWith long blocks first, as the first finding advises:")
    show(diff([read_trace(BEFORE)], [read_trace(AFTER)]))
    for copy, shipped in copies.items():
        with replacing(copy, force=force) as file:
            file.write(shipped.read_bytes())
    trace.report().save(page, force=force)
    written = ", ".join(printable(str(each)) for each in (*copies, page))
    click.echo(f"\nwrote {written}.", err=True)
    next_command("ikp", "diff", before, after, why="what the change did")
    next_command(
        "ikp", "view", "--finding", 1, path, why="where the first finding is, in your browser"
    )


DEFAULT = Path("ikp-demo.pftrace")
BLOCK, DIM = 64, 64
_LOG2_E = 1 / math.log(2)


@dataclass(frozen=True, slots=True)
class _Size:
    """The size of the attention problem: ``tiles * BLOCK`` rows for each head."""

    device: str
    tiles: int
    heads: int


_ON_GPU = _Size("cuda", tiles=16, heads=32)
ON_CPU = _Size("cpu", tiles=4, heads=2)


def _refuse_where_off() -> None:
    if not enabled():
        value = os.environ[KILL_SWITCH]
        raise UsageError(f"{KILL_SWITCH}={value} in the environment turns recording off: unset it.")


@click.command("demo", short_help="Profile a small kernel, with or without a GPU.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help=f"Where to write the trace, or the program. Without it: ./{DEFAULT}, replaced each time.",
)
@click.option("--force", is_flag=True, help="Overwrite the file given with --out, or a program.")
@click.option(
    "--recorded",
    is_flag=True,
    help="Show a library's kernel as an H100 ran it, unedited: needs no GPU, torch or Triton.",
)
@click.option(
    "--program",
    is_flag=True,
    help=f"Write {PROGRAM.name} instead, an ordinary Triton program to try `ikp run` on.",
)
def command(out: Path | None, force: bool, recorded: bool, program: bool) -> None:
    """Profile a flash-attention kernel in Triton: print its table and verdict, write its trace.

    With an NVIDIA GPU the compiled kernel runs there. Without one it runs in Triton's CPU
    interpreter: the verbs, the records and the trace are the same, the times are the host's.
    """
    if recorded and program:
        raise UsageError("--recorded shows a trace, --program writes a program: give one.")
    if program:
        write_program(out or Path(PROGRAM.name), force=force)
        return
    if recorded:
        show_recorded(out or DEFAULT, force=force or out is None)
        return
    if out is not None:
        from ikp.registry import check_target

        check_target(out, force)
    _refuse_where_off()
    size = _choose_size()
    path = out or DEFAULT
    trace = _profile_attention(path, size)
    _report(trace, path)
    next_command("ikp", "view", path, why=f"or drag it onto {UI}")


def _profile_attention(path: Path, size: _Size) -> Trace:
    """Run the demo's kernel once, check its result, write its trace to ``path`` and return it.

    Raises:
        UsageError: the kernel's result is wrong.
    """
    import torch

    import ikp
    from ikp.cli._demo_kernel import attention

    torch.manual_seed(0)
    shape = (3, size.heads, size.tiles * BLOCK, DIM)
    q, k, v = torch.randn(shape, dtype=torch.float16, device=size.device)
    out = torch.empty_like(q)
    grid = (size.tiles, size.heads)
    with ikp.profile(path, force=True) as prof:
        scale = _LOG2_E / math.sqrt(DIM)
        buffer = prof.buffer("attention")
        attention[grid](q, k, v, out, scale, buffer, TILES=size.tiles, BLOCK=BLOCK, DIM=DIM)
    _check(q, k, v, out)
    trace: Trace = prof.trace
    return trace


def _choose_size() -> _Size:
    missing = [name for name in ("torch", "triton") if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"the demo's kernel needs what is not installed here: {', '.join(missing)}. "
            "Do: pip install 'ikp[triton]'; or see a kernel that an H100 ran: ikp demo --recorded"
        )
    import torch

    if interpreted():
        click.echo("TRITON_INTERPRET is set: running in Triton's CPU interpreter.", err=True)
        return ON_CPU
    if torch.cuda.is_available():
        click.echo(f"running on {torch.cuda.get_device_name()}.", err=True)
        return _ON_GPU
    # Triton reads this variable when it is imported, which happens later.
    os.environ["TRITON_INTERPRET"] = "1"
    click.echo(
        "no GPU found: running in Triton's CPU interpreter. The times are the host's.\n"
        "Those of an H100: ikp demo --recorded",
        err=True,
    )
    return ON_CPU


def _check(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor) -> None:
    from torch.nn.functional import scaled_dot_product_attention

    right = scaled_dot_product_attention(q.float(), k.float(), v.float(), is_causal=True)
    error = (out.float() - right).abs().max().item()
    click.echo(f"the kernel's result agrees with PyTorch's within {error:.1e}.", err=True)
    if not error < 0.01:
        raise UsageError(
            f"the kernel's result is off by {error:.2g} from PyTorch's: this Triton and GPU don't "
            "compute the demo right. Please report it, with the output of `ikp doctor`."
        )


def _report(trace: Trace, path: Path) -> None:
    from ikp.cli import _demo_kernel as demo_kernel

    trace.print_stats()
    click.echo()
    print_verdict(trace.explain())
    size = path.stat().st_size / 1024
    click.echo(
        f"\nwrote {printable(str(path))} ({size:,.0f} KiB).\nThe kernel: {demo_kernel.__file__}",
        err=True,
    )
