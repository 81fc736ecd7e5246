"""``ikp.gather``: the traces of all ranks, gathered by torch.distributed and joined into one."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ikp.core.host_clock import BOOT, HostClock
from ikp.edit.join import concat
from ikp.errors import UsageError
from ikp.paths import boot
from ikp.profiling.hosts import compared, placed
from ikp.session.current import distributed
from ikp.trace import Trace
from ikp.version import __version__

_RANKS = "ranks"
"""The provenance of a trace's ranks and their hosts."""


def gather(trace: Trace, group: Any = None, dst: int = 0) -> Trace | None:
    """Return the traces of all ranks as one on rank ``dst``, and None on the others.

    A collective call: every rank of the group makes it, each with its own trace. A rank that leaves
    it out lets the others wait until the group's timeout. Launches are in the order of ranks, each
    with its ``rank``; those recorded before their process had a rank get it now. Times are those of
    the host of ``dst``: clocks of other hosts are compared with its own, and bounds grow by what is
    not known of them (``docs/ranks.md``).

    Traces travel as pickled objects, so all ranks must trust each other, and with the ``nccl``
    backend each must have chosen its GPU with ``torch.cuda.set_device``.

    Args:
        trace: of this rank, such as ``prof.trace``; it may be empty.
        group: the process group, of any backend; None is the one of all ranks.
        dst: the rank that gets the result, as numbered among all ranks.

    Raises:
        UsageError: there is no process group, this process is not in ``group``, a rank has no
            trace, or ranks differ in ``dst`` or in their version of ikp. What concerns one rank is
            raised on all, so that none is left waiting. On ``dst`` also what
            ``ikp.edit.concat`` raises.
    """
    dist, group = _joined(group)
    rank = int(dist.get_rank())
    mine = {
        "rank": rank,
        "host": platform.node(),
        "boot": boot(),
        "ikp": __version__,
        "dst": dst,
        "got": _what_else(trace),
    }
    ranks: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(ranks, mine, group=group)
    _check(ranks)
    clocks = compared(dist, group, {each["rank"]: each["boot"] for each in ranks}, dst)
    parts: list[Any] | None = [None] * len(ranks) if rank == dst else None
    dist.gather_object(_numbered(trace, rank), parts, dst=dst, group=group)
    if parts is None:
        return None
    order = sorted(range(len(ranks)), key=lambda i: ranks[i]["rank"])
    here = [_on_own_clock(parts[i], ranks[i]["boot"], clocks) for i in order]
    whole: Trace = concat([trace for trace, _ in here])
    where = _told([{**ranks[i], "clock": said} for i, (_, said) in zip(order, here, strict=True)])
    return replace(whole, provenance={**whole.provenance, _RANKS: where})


def _on_own_clock(trace: Trace, of: str, clocks: Mapping[str, HostClock]) -> tuple[Trace, str]:
    """Return a rank's trace with times of this host, and what was found; "" for this host's own.

    A trace that its rank did not record in this boot keeps its times.
    """
    if of not in clocks or trace.provenance.get(BOOT, of) != of:
        return trace, ""
    return placed(trace, clocks[of], boot())


def _what_else(given: object) -> str:
    """Return the text of an argument that is no trace; "" for a trace."""
    return "" if isinstance(given, Trace) else repr(given)[:200]


def _joined(group: Any) -> tuple[Any, Any]:
    """Return torch.distributed and the group, of which this process is a member."""
    dist = distributed()
    if dist is None:
        raise UsageError(
            "ikp.gather needs the process group of all ranks, and there is none. Call it after "
            "torch.distributed.init_process_group and before destroy_process_group; traces in "
            "files are joined by ikp.edit.concat(map(ikp.load, paths))."
        )
    if dist.get_rank(group) < 0:
        raise UsageError(
            f"rank {dist.get_rank()} called ikp.gather with a group that it is not in: call it on "
            "the ranks of the group alone."
        )
    return dist, dist.group.WORLD if group is None else group


def _check(ranks: list[dict[str, Any]]) -> None:
    """Check that ranks agree; every rank has the same facts, so every rank raises the same error.

    Raises:
        UsageError: see :func:`gather`.
    """
    versions = _by(ranks, "ikp")
    if len(versions) > 1:
        raise UsageError(
            f"ranks have different versions of ikp: {_listed(versions)}. Install one version on "
            "all, or write a trace per rank."
        )
    without = {got: found for got, found in _by(ranks, "got").items() if got}
    if without:
        raise UsageError(
            f"ikp.gather wants the Trace of every rank, and got {_listed(without)}. Give "
            "prof.trace, after the session or in it; it is an empty trace where nothing was "
            "recorded."
        )
    wanted = _by(ranks, "dst")
    if len(wanted) > 1 or not wanted.keys() <= _by(ranks, "rank").keys():
        raise UsageError(
            f"ikp.gather needs one rank for the trace: dst is {_listed(wanted)}. Give all ranks "
            "the same dst: one of the group, as numbered among all ranks."
        )


def _by(ranks: list[dict[str, Any]], fact: str) -> dict[Any, list[int]]:
    """Return the ranks by their value of a fact."""
    found: dict[Any, list[int]] = {}
    for each in ranks:
        found.setdefault(each[fact], []).append(each["rank"])
    return found


def _listed(found: dict[Any, list[int]]) -> str:
    return "; ".join(f"{what} on {_ranks(ranks)}" for what, ranks in found.items())


def _ranks(ranks: list[int]) -> str:
    """Return ``"rank 3"`` or ``"ranks 0, 2"``, long lists cut short."""
    shown = ", ".join(map(str, ranks[:16])) + (", ..." if len(ranks) > 16 else "")
    return f"rank{'s' * (len(ranks) > 1)} {shown}"


def _numbered(trace: Trace, rank: int) -> Trace:
    launches = tuple(
        replace(launch, rank=rank) if launch.rank is None else launch for launch in trace.launches
    )
    return replace(trace, launches=launches)


def _told(ranks: list[dict[str, Any]]) -> str:
    """Return which ranks ran on which hosts, and of other hosts than this one what clocks said."""
    hosts: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for each in ranks:
        hosts.setdefault((each["boot"], each["host"]), []).append(each)
    said = []
    for (_, host), members in hosts.items():
        clocks = dict.fromkeys(each["clock"] for each in members if each["clock"])
        where = f"{_ranks([each['rank'] for each in members])} on {host}"
        said.append(", ".join([where, *(f"whose clock {one}" for one in clocks)]))
    return "; ".join(said)
