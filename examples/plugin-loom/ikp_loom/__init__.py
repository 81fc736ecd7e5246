"""The backend that the entry point names: Loom as the host sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ikp.plugins import BufferError, Dsl, Language, Segment, UsageError, known


@dataclass(frozen=True, slots=True)
class Prof:
    """What ``prof.buffer(label)`` returns: a kernel hands it to ``ikp.init``."""

    segment: Segment

    @property
    def data(self) -> Any:
        """The memory, which ikp asks for."""
        return self.segment.data


class LoomBackend:
    """ikp's verbs in Loom's kernels. They run in Python, on the CPU."""

    interface = 2  # a literal: ikp.plugins.INTERFACE would claim to fit every version
    languages = (Language("Loom", "@loom.kernel"),)

    def __init__(self) -> None:
        import loom  # noqa: F401 - sessions can do without ikp_loom where Loom isn't installed

    @staticmethod
    def adapter(semantic: Any, verb: str) -> Dsl | None:  # noqa: ARG004
        """Return what the verbs ask, if a kernel of Loom's runs right now."""
        from ikp_loom.adapter import RUNNING

        return RUNNING if semantic is None and RUNNING.warp() is not None else None

    def device_type(self) -> str:
        """Return "cpu": there is nothing else."""
        return "cpu"

    def argument(self, segment: Segment) -> Prof:
        """Return what a kernel takes for its ``prof``.

        Raises:
            BufferError: the memory is a GPU's.
            UsageError: totals were asked for.
        """
        if segment.spec.device != "cpu":
            raise BufferError("Loom runs on the CPU: leave device= out, or use device='cpu'.")
        if segment.spec.totals:
            raise UsageError("Loom keeps no totals: record a timeline.")
        return Prof(segment)

    def names(self) -> dict[int, str]:
        """Return the regions that verbs have named so far."""
        return known()
