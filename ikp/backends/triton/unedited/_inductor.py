"""A hook on torch Inductor's launches, which records kernels that ``torch.compile`` generated.

Inductor compiles its kernels ahead, in other processes too, tries their configurations and keeps a
launcher for the best. A marked launch goes through Triton instead: the same jitted function, the
same configuration and grid. Inductor's compiled code and caches stay as they are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from ikp.backends.patched import others, pass_by
from ikp.backends.triton.unedited._foreign import GENERATED, TORCH, JittedFunction, fits
from ikp.backends.triton.unedited._launching import Launcher
from ikp.backends.triton.unedited._over import Over
from ikp.probing import Untyped
from ikp.session.current import Session
from ikp.signals import pass_on

__tracebackhide__ = True  # pytest shows a launch that fails as it does without ikp


def step_in(module: Untyped, launcher: Launcher) -> Callable[[], None]:
    """Have Inductor's launches go through ``launcher``; return the function that undoes it."""
    if not TORCH.has(GENERATED):
        return lambda: None
    kind = module.CachingAutotuner
    original = kind.run
    over = Over(launcher)

    @functools.wraps(original)
    def run(self: Untyped, /, *args: object, **kwargs: object) -> object:
        if not kwargs.get("benchmark_run") and over.counts(self):
            return pass_by(self.fn.__name__, original, self, *args, **kwargs)
        with others():
            return launched(self, *args, **kwargs)

    def launched(self: Untyped, /, *args: object, **kwargs: object) -> object:
        def plain(*_: object, **__: object) -> object:
            return original(self, *args, **kwargs)

        try:
            found = _found(self, module, launcher, args, kwargs)
            if found is None and (function := _function(self)) is not None and fits(function):
                over.look(self, function)
        except Exception as error:  # noqa: BLE001 - the program launches as it does without ikp
            pass_on(error)
            TORCH.lose(GENERATED, f"launches kernels otherwise ({type(error).__name__}: {error})")
            found = None
        if found is None:
            return plain()
        session, function, launch = found
        return launcher.record(session, function, plain, (), launch)

    kind.run = run
    return lambda: setattr(kind, "run", original)


def _found(
    autotuner: Untyped,
    module: Untyped,
    launcher: Launcher,
    args: tuple[object, ...],
    kwargs: dict[str, object],
) -> tuple[Session, JittedFunction, dict[str, object]] | None:
    """Return the session, the function and the arguments to launch it with; None to run plain."""
    # An interpreted kernel goes through Triton anyway.
    if kwargs.get("benchmark_run") or getattr(autotuner, "triton_interpret", False):
        return None
    if not TORCH.fits(GENERATED, autotuner):
        return None
    function = _function(autotuner)
    if function is None or not fits(function):
        return None
    function = launcher.special(function)  # it has one configuration
    session = launcher.chosen(function)
    if session is None:
        return None
    own = {name: value for name, value in kwargs.items() if name not in ("stream", "benchmark_run")}
    config = _config(autotuner, args, own)
    if config is None:
        return None
    return session, function, _launch(autotuner, module, function, config, args)


def _function(autotuner: Untyped) -> Untyped:
    """Return the jitted function; the parent of a compile worker drops it, and can load it anew."""
    if getattr(autotuner.fn, "fn", None) is None:
        reload: Callable[[], Untyped] | None = getattr(autotuner, "_reload_kernel", None)
        if reload is None:
            return None
        autotuner.fn = reload().fn  # as Inductor does when it needs the function
    return autotuner.fn


def _config(autotuner: Untyped, args: tuple[object, ...], kwargs: dict[str, object]) -> Untyped:
    """Return the configuration that a plain launch would use, chosen by plain launches."""
    if not autotuner.launchers:
        autotuner.precompile()
    if len(autotuner.launchers) > 1:
        autotuner.autotune_to_one_config(*args, **kwargs)
    return autotuner.launchers[0].config if autotuner.launchers else None


def _launch(
    autotuner: Untyped,
    module: Untyped,
    function: Untyped,
    config: Untyped,
    args: tuple[object, ...],
) -> dict[str, object]:
    """Return the keyword arguments of the same launch through Triton."""
    names = function.arg_names
    given = [name for i, name in enumerate(names) if i not in function.constexprs]
    extra = autotuner.inductor_meta.get("extra_launcher_args", ())
    values = dict(zip([*given, *extra], args, strict=False))
    grid = module.GridExpr.from_meta(autotuner.inductor_meta, config).eval_slow(values)
    constants = {
        _name(key, names): value
        for key, value in autotuner.triton_meta.get("constants", {}).items()
    }
    options = {"num_warps": config.num_warps, "num_stages": config.num_stages}
    arguments = {**constants, **config.kwargs, **values}
    known = {name: value for name, value in arguments.items() if name in names}
    return {**known, **options, "grid": tuple(grid), "warmup": False}


def _name(key: object, names: list[str]) -> str:
    """Return the parameter that Inductor gives by its name, its index or its path."""
    if isinstance(key, tuple):
        key = key[0]
    return names[key] if isinstance(key, int) else str(key)
