"""``PatchInput``: a plain kernel, and all that its patch in machine code is made by."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ikp.backends.launched_grid import LaunchGrid
from ikp.core.abi import Language
from ikp.errors import PatchError
from ikp.probes.kept_code import keep
from ikp.sass.assembly.chips import untested_asked
from ikp.unedited.plan import Plan

if TYPE_CHECKING:
    from ikp.probes.made_patch import Patch


def changes_code() -> bool:
    """Return whether the user lets machine code be changed: ``IKP_PATCH=0`` says no."""
    return os.environ.get("IKP_PATCH") != "0"


@dataclass(frozen=True, slots=True)
class PatchInput:
    """A plain kernel, with the options of its patch: any process makes the same of it."""

    code: bytes  # the cubin
    name: str  # the kernel's symbol, as the compiler wrote it
    options: dict[str, Any]  # of ``ikp.probes.patch.patch``

    @classmethod
    def of(
        cls,
        code: bytes,
        name: str,
        ptx: str,
        plan: Plan,
        language: Language,
        *,
        shared: int,
        block: tuple[int, int, int] | None = None,
        argue: bool = False,
        spare: bool = False,
        grid: LaunchGrid,
    ) -> PatchInput:
        """Return a kernel with its options; of the arguments, see ``patched.made``."""
        options: dict[str, Any] = {"detail": plan.detail, "language": language}
        options |= {"block": block, "shared": shared, "select": grid.select}
        options |= {"lines": plan.lines, "functions": plan.functions, "ranges": plan.ranges}
        options |= {"max_overhead": plan.max_overhead, "argue": argue, "spare": spare}
        options |= {"flat": grid.flat, "sure": grid.sure, "blocks": grid.blocks}
        return cls(code, name, options | {"ptx": ptx, "untested": untested_asked()})

    def patched(self) -> Patch:
        """Insert probes into the machine code, and keep it; or return a patch kept before.

        Raises:
            PatchError: the kernel is refused, now or before.
        """
        from ikp.probes.kept_patch import KeptPatch

        place = KeptPatch.of(self.code, self.name, self.options)
        known = place.read() if place is not None else None
        if isinstance(known, str):
            raise PatchError(known)
        if known is not None:
            return known
        from ikp.probes.patch import patch  # with all that patches: a tenth of a second

        try:
            made = patch(self.code, self.name, **self.options)
        except PatchError as error:
            if place is not None:
                place.write(str(error))
            raise
        ptx, shared = self.options["ptx"], self.options["shared"]
        made = replace(made, kept=keep(made, self.name, ptx, shared, self.code))
        if place is not None:
            place.write(made)
        return made
