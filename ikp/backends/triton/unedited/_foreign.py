"""Private names of the launchers of Triton and torch's Inductor that ikp uses, by feature.

They are here, and not in ``ikp.backends.triton.foreign``, because this module loads no Triton.
``ikp run`` waits until the program loads it, which may want to set its environment first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from contextvars import copy_context
from copy import copy
from functools import cache
from inspect import Parameter
from io import StringIO
from typing import Protocol

from ikp.errors import PatchError
from ikp.probing import Feature, Foreign, Private, Untyped


class JittedFunction(Protocol):
    """A jitted function of Triton's, compiled or interpreted: the attributes a launch reads."""

    arg_names: list[str]
    fn: Untyped  # Python's own function; typed as one, checkers would take it for a method

    @property
    def __name__(self) -> str:
        """The function's name."""

    def run(self, *args: object, **kwargs: object) -> object:
        """Launch it; with ``warmup=True`` compile it only."""


def parameters(kernel: JittedFunction) -> tuple[list[str], Sequence[int]]:
    """Return a function's parameters, and which are constants; none of an interpreted one are."""
    return kernel.arg_names, getattr(kernel, "constexprs", ())


def is_jitted(kernel: object) -> bool:
    """Whether a kernel is a function that Triton compiles, with what was compiled."""
    return hasattr(kernel, "device_caches")


def handles(kernel: Untyped) -> set[int]:
    """Return the driver's handles of a function's compiled kernels that are loaded."""
    return set(loaded(kernel))


def loaded(kernel: Untyped) -> dict[int, Untyped]:
    """Return a function's compiled kernels that are loaded, by the driver's handle."""
    caches = tuple(kernel.device_caches.values())
    compiled = [each for cache in caches for each in tuple(cache[0].values())]
    found = ((getattr(each, "function", None), each) for each in compiled)
    return {handle: each for handle, each in found if isinstance(handle, int)}


def set_own_launch(
    kernel: Untyped, run: Callable[..., object], compiling: Callable[[], None]
) -> None:
    """Give a function a ``run`` of its own; ``compiling`` is called before Triton compiles it."""

    def compiles(*args: object, **kwargs: object) -> object:
        compiling()
        return type(kernel)._do_compile(kernel, *args, **kwargs)

    kernel.run, kernel._do_compile = run, compiles


def take_own_launch(kernel: object) -> None:
    """Take a function's own ``run`` away again."""
    for name in ("run", "_do_compile"):
        vars(kernel).pop(name, None)


JIT = "triton.runtime.jit"
INTERPRETER = "triton.runtime.interpreter"
AUTOTUNER = "triton.runtime.autotuner"
HEURISTICS = "torch._inductor.runtime.triton_heuristics"


def _own(module: str, kind: str, *attributes: str) -> tuple[Private, ...]:
    """Return names that only objects of a class have."""
    return tuple(Private(module, f"{kind}.{name}", of_instances=True) for name in attributes)


_PLAIN = "Unedited kernels run without marks (ikp run, ikp.instrument)"

_PARAMETER = Private(
    JIT,
    "KernelParam",
    takes=("num", "param", "do_not_specialize", "do_not_specialize_on_alignment"),
)
COMPILED = Feature(
    (
        Private(JIT, "JITFunction.run", takes=("grid", "warmup")),
        *(
            Private(JIT, f"JITFunction.{name}")
            for name in ("parse", "get_capture_scope", "cache_key", "create_binder", "src")
        ),
        *_own(JIT, "JITFunction", "fn", "raw_src", "starting_line_number"),
        *_own(JIT, "JITFunction", "signature", "params", "arg_names"),
        *_own(JIT, "JITFunction", "device_caches", "pre_run_hooks"),
        *_own(JIT, "JITFunction", "hash", "used_global_vals", "_hash_lock"),
        _PARAMETER,
    ),
    f"{_PLAIN}.",
)
"""The functions that Triton compiles."""

_REWRITER = "FunctionRewriter"
INTERPRETED = Feature(
    (
        Private(INTERPRETER, "InterpretedFunction.run"),
        Private(INTERPRETER, "InterpretedFunction.rewrite"),
        *_own(INTERPRETER, "InterpretedFunction", "fn", "rewriter", "arg_names", "pre_run_hooks"),
        Private(INTERPRETER, f"{_REWRITER}.rewrite_ast"),
        Private(INTERPRETER, f"{_REWRITER}._find_def", takes=("lines",)),
        Private(INTERPRETER, f"{_REWRITER}._prepare_source", takes=("lines",)),
        Private(INTERPRETER, f"{_REWRITER}._transform_ast", takes=("src",)),
        Private(INTERPRETER, f"{_REWRITER}._compile_and_exec", takes=("transformed_ast",)),
    ),
    f"{_PLAIN} in Triton's interpreter.",
)
"""The functions that Triton interprets."""

COMPILES = Feature(
    (Private(JIT, "JITFunction._do_compile"),),
    "Launches of kernels that are recorded no more take 4 us longer.",
    "The program gets the same results.",
)
"""How a function compiles a specialisation at its first launch."""

TRIALS = Feature(
    (Private(AUTOTUNER, "Autotuner._bench"),),
    "Autotuners try kernels with marks in them, which may make them choose another configuration "
    "than they do without ikp; their trials are in the trace.",
    "The program gets the same results.",
)
"""How autotuners try kernels."""

_COMPILER = "triton.compiler.compiler"
_RUN = Private(_COMPILER, "CompiledKernel.run")
LAUNCHES = Feature(
    (_RUN,),
    "Kernels can't be recorded in their machine code (level='machine').",
)
"""How compiled kernels are loaded and launched."""

_NVIDIA = "triton.backends.nvidia.compiler"
_BACKEND = Private(_COMPILER, "make_backend", takes=("target",))
ASSEMBLES = Feature(
    (
        _BACKEND,
        Private(_NVIDIA, "CUDABackend.parse_options", takes=("opts",)),
        Private(_NVIDIA, "CUDABackend._parse_arch", takes=("arch",)),
        Private(_NVIDIA, "CUDABackend.make_cubin", takes=("src", "metadata", "opt", "capability")),
    ),
    "Kernels can't be recorded in their PTX (level='ptx').",
)
"""How Triton has PTX assembled: with the assembler and the options that the plain kernel had."""

_LAUNCHER = Private("triton.backends.nvidia.driver", "CudaLauncher")
SCRATCH = Feature(
    (
        _LAUNCHER,
        *_own(_LAUNCHER.module, _LAUNCHER.path, "launch", "global_scratch_size"),
        *_own(_LAUNCHER.module, _LAUNCHER.path, "profile_scratch_size"),
    ),
    "A launch that is recorded in machine code gets its buffer's address by a copy of 16 bytes "
    "before it, which takes 1 us longer.",
)
"""The scratch memory whose addresses a launch passes behind a kernel's own arguments: the kernel's
and a profiler's. Most kernels have neither."""

TRITON = Foreign(
    *("Triton", "triton", ("3.6", "3.9")),
    (COMPILED, INTERPRETED, COMPILES, TRIALS, LAUNCHES, ASSEMBLES, SCRATCH),
)

GENERATED = Feature(
    (
        Private(HEURISTICS, "CachingAutotuner.run"),
        Private(HEURISTICS, "CachingAutotuner.precompile"),
        Private(HEURISTICS, "CachingAutotuner.autotune_to_one_config"),
        *_own(HEURISTICS, "CachingAutotuner", "fn", "launchers", "inductor_meta", "triton_meta"),
        Private(HEURISTICS, "GridExpr.from_meta"),
        Private(HEURISTICS, "GridExpr.eval_slow"),
    ),
    "Kernels of torch.compile run without marks (ikp run).",
)
"""The kernels that torch.compile generates and launches by itself."""

TORCH = Foreign("torch", "torch", ("2.10", "2.15"), (GENERATED,))


def step_into_launches(around: Callable[[Untyped, Callable[..., object]], Untyped]) -> None:
    """Launch each compiled kernel by the function that ``around(compiled, launch)`` returns."""
    launch: Untyped = _RUN.find()

    def run(self: Untyped) -> Untyped:
        return around(self, launch.fget(self))

    Private(_COMPILER, "CompiledKernel").find().run = property(run)


def assemble(compiled: Untyped, ptx: str) -> bytes:
    """Return the machine code of a PTX text, assembled as a compiled kernel's own was.

    Raises:
        RuntimeError: the assembler refuses it.
    """
    metadata = compiled.metadata._asdict()
    backend = _BACKEND.find()(metadata["target"])
    options = backend.parse_options(dict(metadata))
    capability = int(backend._parse_arch(options.arch))
    with redirect_stdout(StringIO()):  # of a failure it prints the whole text
        return bytes(backend.make_cubin(ptx, dict(metadata), options, capability))


def has_no_scratch(launcher: Untyped) -> bool:
    """Return whether a launcher's kernel has no scratch memory, so that both its words are free."""
    if not (TRITON.has(SCRATCH) and isinstance(launcher, _launcher())):
        return False
    fits = TRITON.fits(SCRATCH, launcher)
    return fits and not (launcher.global_scratch_size or launcher.profile_scratch_size)


@cache
def _launcher() -> Untyped:
    return _LAUNCHER.find()


class Passing:
    """A launcher of a kernel without scratch memory, which passes two words in its place.

    Where that is among the arguments, the first launch finds out. One thread uses it.

    Args:
        plain: Triton's launcher of the kernel.
    """

    def __init__(self, plain: Untyped) -> None:
        import triton

        self.plain = plain
        self.words: Sequence[int] = ()
        """Two words of 64 bits: for the kernel's own memory, and a profiler's."""
        self._mark, self._at = object(), 0
        self._allocates = triton.set_allocator
        self._first, self._later = copy(plain), copy(plain)
        self._first.global_scratch_size, self._first.launch = 1, self._launch_first
        self._later.launch = self._launch

    def __call__(self, *args: object) -> object:
        if self._at:
            return self._later(*args)
        return copy_context().run(self._run, *args)

    def _run(self, *args: object) -> object:
        self._allocates(self._marked)
        return self._first(*args)

    def _marked(self, *_: object) -> object:
        return self._mark

    def _launch_first(self, *args: object) -> object:
        at = next(n for n, each in enumerate(args) if each is self._mark)
        made = self._launch(*args[:at], None, *args[at + 1 :], at=at)
        self._at = at
        return made

    def _launch(self, *args: object, at: int = 0) -> object:
        at = at or self._at
        if args[at] is not None or args[at + 1] is not None:
            raise PatchError("Triton has put something else where a profiler's memory was.")
        return self.plain.launch(*args[:at], *self.words, *args[at + 2 :])


_LARGE = 48 << 10
_PREFER_SHARED = 1


def cache_of(compiled: Untyped) -> int:
    """Return the cache configuration that Triton has set for a kernel; -1 for none.

    The driver does not report it. Triton prefers shared memory where a kernel has more of it than
    any chip gives without being asked.
    """
    return _PREFER_SHARED if int(getattr(compiled.metadata, "shared", 0)) > _LARGE else -1


def argument_names(compiled: Untyped) -> list[str]:
    """Return the names of a compiled kernel's arguments, where they are known."""
    return list(getattr(getattr(compiled.src, "fn", None), "arg_names", ()))


def argument_types(compiled: Untyped) -> dict[str, str]:
    """Return the types of a compiled kernel's arguments by name: "*fp16", "i32", "constexpr"."""
    signature = getattr(compiled.src, "signature", {})
    return {str(name): kind for name, kind in signature.items() if isinstance(kind, str)}


def fits(kernel: object) -> bool:
    """Return whether a jitted function is as ``ikp`` knows them, so that it can be marked."""
    kind: Untyped = type(kernel)
    return TRITON.fits(INTERPRETED if _is_interpreted(kind) else COMPILED, kernel)


@cache
def _is_interpreted(kernels: Untyped) -> bool:
    """Return whether Triton's interpreter runs the jitted functions of a class."""
    return any(kind.__name__ == "InterpretedFunction" for kind in kernels.__mro__)


def parameter(number: int, described: Parameter) -> object:
    """Return Triton's description of a kernel's parameter that it may specialise on."""
    return _PARAMETER.find()(number, described, False, False)


def quieted(autotuner: object, quiet: Callable[[Callable[..., object]], object]) -> None:
    """Wrap the function by which one autotuner tries kernels in ``quiet``."""
    if hasattr(autotuner, "_bench"):
        autotuner._bench = quiet(autotuner._bench)


def source(rewriter: Untyped, lines: list[str]) -> str:
    """Return an interpreted function's source from ``def`` on, as its rewriter takes it."""
    rewriter.def_lineno = rewriter._find_def(lines)
    return str(rewriter._prepare_source(lines))
