"""Launches as CUPTI counts them: what no hook of ikp saw is in there, too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

_NO_KERNELS = ("Memcpy", "Memset")


def counted(run: Callable[[], None]) -> dict[str, int]:
    """Return how often each kernel is launched meanwhile, by the name that ikp would give it."""
    from torch.profiler import ProfilerActivity, profile

    from ikp.backends.driver._names import readable

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        run()
    found = Counter[str]()
    for each in profiler.events() or ():
        if str(each.device_type).endswith("CUDA") and not each.name.startswith(_NO_KERNELS):
            found[readable(each.name)] += 1
    return dict(found)
