"""For ``ikp verify``: each patched cubin that a trace names, checked against the plain one kept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ikp.core.trace import Trace
from ikp.errors import IkpError, InspectError
from ikp.inspection._images import why_none
from ikp.probes.kept_code import DECLARED, KEPT, MACHINE_MARK, PLAIN
from ikp.sass.cubins.cubin import Cubin
from ikp.sass.dataflow.reading import code_of
from ikp.verifier.declared import Declared
from ikp.verifier.verify import faults


@dataclass(frozen=True, slots=True)
class Verified:
    """What came of one patched kernel.

    ``faults`` say what is wrong with it, nothing if it was verified; where it could not be, ``why``
    says why not.
    """

    label: str  # what the trace calls the kernel
    path: str  # the patched cubin
    faults: tuple[str, ...] = ()
    why: str = ""

    @property
    def state(self) -> str:
        """Return ``"verified"``, ``"failed"`` or ``"unknown"``."""
        return "failed" if self.faults else "unknown" if self.why else "verified"


def verified(trace: Trace) -> list[Verified]:
    """Verify each patched kernel that a trace names.

    Raises:
        InspectError: it names none.
    """
    found = list(_verified(trace))
    if not found:
        raise InspectError(f"this trace names no patched kernel: {why_none(trace)[0]}.")
    return found


def _verified(trace: Trace) -> Iterator[Verified]:
    for name, paths in trace.provenance.items():
        for path in paths.splitlines() if name.startswith(KEPT) else ():
            label = name.removeprefix(KEPT)
            try:
                wrong = _faults(Path(path))
            except (IkpError, OSError, ValueError) as error:
                yield Verified(label, path, why=str(error))
            else:
                yield Verified(label, path, tuple(wrong))


def _faults(path: Path) -> list[str]:
    """Return what is wrong with a kept cubin.

    Raises:
        InspectError: what it would be held against was not kept.
        PatchError: the plain cubin, or what is declared, can't be read.
    """
    text = path.with_suffix(".ptx").read_text(encoding="utf-8", errors="replace")
    said = json.loads(text.rpartition(f"{MACHINE_MARK} ")[2])
    if DECLARED not in said:
        raise InspectError("its records were put into its PTX, which was compiled anew.")
    plain, declared = path.with_suffix(PLAIN).read_bytes(), Declared.from_json(said[DECLARED])
    file = Cubin.read(plain)
    code = code_of(plain, file, file.kernel(declared.kernel).name)
    return faults(plain, path.read_bytes(), code, declared)
