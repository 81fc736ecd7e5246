"""``Warm``: what a warm-up returns, a kernel compiled ahead; its launches may be recorded."""

from __future__ import annotations

from collections.abc import Callable

from ikp.backends.patched import others
from ikp.backends.triton.unedited._foreign import JittedFunction
from ikp.probing import Untyped

__tracebackhide__ = True  # pytest shows a launch that fails as it does without ikp


class Warm:
    """A kernel compiled ahead with ``warmup``: the plain one, which is marked when launched."""

    def __init__(
        self,
        run: Callable[..., object],
        kernel: JittedFunction,
        compiled: Untyped,
        kwargs: dict[str, object],
    ) -> None:
        self._run, self._kernel, self._compiled = run, kernel, compiled
        # A compiled kernel is launched with all its arguments by position, and no options.
        self._options = {
            name: value
            for name, value in kwargs.items()
            if name not in (*kernel.arg_names, "grid", "warmup")
        }

    def __getattr__(self, name: str) -> Untyped:
        return getattr(self._compiled, name)

    def __getitem__(self, grid: object) -> Callable[..., object]:
        """Return a function that launches the kernel on ``grid``."""

        def launch(*args: object, **kwargs: object) -> object:
            if kwargs:  # a stream of its own
                return self._compiled[grid](*args, **kwargs)
            options = {**self._options, "grid": grid, "warmup": False}

            def plain(*args: object, **_: object) -> object:
                return self._compiled[grid](*args)

            with others():
                return self._run(self._kernel, plain, *args, **options)

        return launch
