"""``hook_on`` for AMD GPUs: passes over LLVM IR and assembly, wrapped around Triton's stages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping

from ikp_amd import _ir as ir
from ikp_amd import _registers as registers


def hook_on(stages: MutableMapping[str, Callable[..., str]]) -> None:
    """Wrap the stages of one compilation."""
    stages["llir"] = _completed(stages["llir"])
    stages["amdgcn"] = _with_registers(stages["amdgcn"])


def _completed(make_llir: Callable[..., str]) -> Callable[..., str]:
    def stage(source: object, metadata: Mapping[str, int]) -> str:
        return ir.complete(make_llir(source, metadata), metadata["num_warps"])

    return stage


def _with_registers(make_amdgcn: Callable[..., str]) -> Callable[..., str]:
    def stage(source: str, metadata: object) -> str:
        def again(registers: int) -> str:
            return make_amdgcn(ir.limited(source, registers), metadata)

        return registers.reserve(make_amdgcn(source, metadata), again)

    return stage
