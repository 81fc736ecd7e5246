"""``ikp demo``: profiles a flash-attention kernel in Triton, on a GPU or in the interpreter."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ikp.cli._explain import print_verdict
from ikp.cli._gpu import interpreted
from ikp.cli._program import PROGRAM, write_program
from ikp.cli._reading import next_command
from ikp.errors import UsageError
from ikp.session.current import KILL_SWITCH, enabled
from ikp.terminal import printable
from ikp.viewer.ui import UI

if TYPE_CHECKING:
    import torch

    from ikp.trace import Trace

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
        from ikp.cli._recorded import show_recorded

        show_recorded(out or DEFAULT, force=force or out is None)
        return
    if out is not None:
        from ikp.registry import check_target

        check_target(out, force)
    if not enabled():
        value = os.environ[KILL_SWITCH]
        raise UsageError(f"{KILL_SWITCH}={value} in the environment turns recording off: unset it.")
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
