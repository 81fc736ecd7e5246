"""torch's private names for ``--host``: profiles of all threads, NVTX ranges, marks of launches."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps

from ikp.probing import Feature, Foreign, Private, Untyped

_CONFIG = Private("torch._C._profiler", "_ExperimentalConfig")
CUDA = "torch.cuda"
PROFILERS = "torch.autograd.profiler"
"""Modules that are changed, or asked, once the program has imported them."""
_BEGINS = ("_prepare_profiler", "_enable_profiler")
_ENDS = Private(PROFILERS, "_disable_profiler")

HOST = Feature(
    (
        _CONFIG,
        Private(CUDA, "_lazy_call"),
        *(Private(PROFILERS, name) for name in _BEGINS),
        _ENDS,
    ),
    "--host is off: the trace has what ikp records of kernels alone.",
)
NVTX = "torch.cuda.nvtx"
_RANGE = Private("torch._C._profiler", "_RecordFunctionFast")
RANGES = Feature((Private(NVTX, "_nvtx"), _RANGE), "NVTX ranges are not beside the kernels.")
MARKS = Feature(
    (_RANGE,), "launches are matched with torch.profiler's records by time, not by correlation."
)
TORCH = Foreign("torch", "torch", ("2.10", "2.15"), (HOST, RANGES, MARKS))


def all_threads() -> Untyped:
    """Return the configuration by which a profiler records all threads, and any may end it."""
    return _CONFIG.find()(profile_all_threads=True)


def discard() -> None:
    """End the active profiler without a word to the GPU, and drop what it has seen."""
    _ENDS.find()()


def on_first_use(cuda: Untyped, function: Callable[[], None]) -> bool:
    """Have a function called once torch has initialised CUDA: at once, where it has.

    Args:
        cuda: the module ``torch.cuda``, which has just been imported.
        function: called in the thread that initialises CUDA.

    Returns:
        Whether it will be: False where torch has no such queue.
    """
    queue = getattr(cuda, "_lazy_call", None)
    if queue is not None:
        queue(function)
    return queue is not None


def named_range(name: str) -> AbstractContextManager[object]:
    """Return a context that a profiler shows as a range, and that no graph of torch's holds."""
    made: AbstractContextManager[object] = _RANGE.find()(name)
    return made


def marker() -> Callable[[str], None]:
    """Return a function of a name, which a profiler shows as a range that ends at once."""
    made = _RANGE.find()

    def mark(name: str) -> None:
        with made(name):
            pass

    return mark


def beside_nvtx(
    nvtx: Untyped, push: Callable[[str], None], pop: Callable[[], None]
) -> Callable[[], None]:
    """Have functions called at each NVTX range of the program's; return a function to undo that.

    The functions of ``torch.cuda.nvtx`` stay: torch.compile knows them.

    Args:
        nvtx: the module ``torch.cuda.nvtx``.
        push: called with the text of a range that begins, in its thread.
        pop: called where the last one of a thread ends.
    """
    original = nvtx._nvtx  # noqa: SLF001
    nvtx._nvtx = _Beside(original, push, pop)  # noqa: SLF001
    return lambda: setattr(nvtx, "_nvtx", original)


class _Beside:
    """The library behind ``torch.cuda.nvtx``, whose ranges go to others, too."""

    def __init__(
        self, library: Untyped, push: Callable[[str], None], pop: Callable[[], None]
    ) -> None:
        self._library, self._push, self._pop = library, push, pop

    def __getattr__(self, name: str) -> object:
        return getattr(self._library, name)

    def rangePushA(self, text: str) -> object:  # noqa: N802 - NVTX's name
        depth = self._library.rangePushA(text)
        self._push(text)
        return depth

    def rangePop(self) -> object:  # noqa: N802 - NVTX's name
        self._pop()
        return self._library.rangePop()


def before_profilers(profilers: Untyped, function: Callable[[], None]) -> Callable[[], None]:
    """Have a function called before each profiler that begins; return a function to undo that.

    Args:
        profilers: the module ``torch.autograd.profiler``.
        function: called in the thread in which the profiler begins.
    """
    originals = {name: getattr(profilers, name) for name in _BEGINS if hasattr(profilers, name)}

    def announced(original: Callable[..., object]) -> Callable[..., object]:
        @wraps(original)
        def begin(*args: object, **kwargs: object) -> object:
            function()
            return original(*args, **kwargs)

        return begin

    for name, original in originals.items():
        setattr(profilers, name, announced(original))

    def undo() -> None:
        for name, original in originals.items():
            setattr(profilers, name, original)

    return undo
