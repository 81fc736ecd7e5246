"""What a kernel must know of its recording when it is compiled."""

from __future__ import annotations

from dataclasses import dataclass

from ikp.core.abi import ABI_VERSION, ClockKind, OverflowMode


@dataclass(frozen=True, slots=True)
class Spec:
    """Compile-time half of a kernel's ``prof`` argument; prints as it parses.

    It is part of the DSL's cache key, so a kernel compiled for another ABI, another clock or by
    another revision of the device code is never taken from a compile cache.
    """

    clock: ClockKind = ClockKind.CYCLES
    overflow: OverflowMode = OverflowMode.STOP
    device: str = "cuda"  # where the segment lies: "cuda" or "cpu"
    schedule: bool = True  # let the compiler hook place clock reads and stores
    barriers: bool = True  # on AMD GPUs, let the compiler move nothing across a clock read
    select: bool = False  # the launch header says which warps and blocks record
    totals: bool = False  # sum up each region in registers, and write its total at the end
    abi: int = ABI_VERSION
    revision: str = ""  # fingerprint of the code that generates the device code

    def __str__(self) -> str:
        return (
            f"ikp abi={self.abi} clock={self.clock.name.lower()} "
            f"overflow={self.overflow.name.lower()} device={self.device} "
            f"schedule={int(self.schedule)} barriers={int(self.barriers)} "
            f"select={int(self.select)} totals={int(self.totals)} revision={self.revision}"
        )

    @classmethod
    def parse(cls, text: str) -> Spec:
        """Return the spec that prints as ``text``.

        Raises:
            ValueError: ``text`` is not the text of a spec.
        """
        values = dict(pair.partition("=")[::2] for pair in text.split(" ")[1:])
        try:
            spec = cls(
                clock=ClockKind[values["clock"].upper()],
                overflow=OverflowMode[values["overflow"].upper()],
                device=values["device"],
                schedule=values["schedule"] == "1",
                barriers=values["barriers"] == "1",
                select=values["select"] == "1",
                totals=values["totals"] == "1",
                abi=int(values["abi"]),
                revision=values["revision"],
            )
        except (KeyError, ValueError):
            spec = None
        if spec is None or str(spec) != text:
            raise ValueError(f"not a recording spec: {text!r}")
        return spec
