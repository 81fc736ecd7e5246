"""The plugin's target for GPUs, other than NVIDIA's, that Triton compiles for; wraps its stages.

Triton names each kind by its backend for it: ``options.backend_name``.
"""

from __future__ import annotations

from collections.abc import Callable, Container, MutableMapping

from ikp import registry
from ikp.errors import KernelError, PluginError
from ikp.plugins import TritonTarget

NVIDIA = "cuda"
_PTX = ".ptx"
_PACKAGES = {"hip": "ikp-amd"}
"""The packages of this project that have a target, for messages: they are installed apart."""


def target(backend: str) -> TritonTarget:
    """Return the target of the GPUs that one of Triton's backends compiles for.

    Args:
        backend: Triton's name of it.

    Raises:
        KernelError: no installed package has one, or it can't be loaded.
    """
    try:
        found: TritonTarget | None = registry.triton_target(backend)
    except PluginError as error:
        raise KernelError(
            f"this kernel is compiled by Triton's backend {backend!r}, and what records there "
            f"does not load: {error}"
        ) from error
    if found is None:
        package = _PACKAGES.get(backend, "")
        remedy = f"install {package}" if package else "install a package that has one"
        raise KernelError(
            f"this kernel is compiled by Triton's backend {backend!r}, and no installed package "
            f"records on its GPUs (none registers {backend!r} in {registry.TARGETS}). Do: "
            f"{remedy}; or give the kernel None for the buffer."
        )
    return found


def hook_on(backend: str, stages: MutableMapping[str, Callable[..., str]]) -> str:
    """Wrap the stages of one compilation by a backend; return what is wrong, "" if nothing."""
    try:
        found = target(backend)
    except KernelError as error:
        return f"compiles for GPUs that are not NVIDIA's: {error}"
    for lacking in found.stages:
        if lacking not in stages:
            return f"has no compiler stage {lacking!r} (it has: {', '.join(map(str, stages))})"
    found.hook_on(stages)
    return ""


def last_text(suffixes: Container[str]) -> str:
    """Return the suffix of a compilation's last text, which names a kernel's regions; "" for none.

    Args:
        suffixes: of the files that a compilation left.
    """
    if _PTX in suffixes:
        return _PTX
    others = (f".{each.stages[-1]}" for each in registry.triton_targets())
    return next((suffix for suffix in others if suffix in suffixes), "")
