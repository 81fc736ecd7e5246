"""Private names of Triton's compiler and interpreter that ikp uses, by feature.

Those of Triton's launcher are in ``unedited._foreign``, which must not load Triton before programs
do.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache

from ikp.probing import Feature, Foreign, Private, Untyped

_KNOBS = "triton.knobs"
_CORE = "triton.language.core"
_SEMANTIC = "triton.language.semantic"

_STAGES = Private(_KNOBS, "runtime.add_stages_inspection_hook")
STAGES = Feature(
    (_STAGES,),
    "Kernels record without ikp's passes over their code: a kernel's end is recorded only where "
    "ikp.finish() is called, records stay where they are written (schedule=True has no effect), "
    "and kernels that need a pass (warp-specialised ones, noinline functions with verbs, "
    "mode='totals') are refused.",
    "Other kernels record, and the program runs.",
)

_LOADED = Private(_KNOBS, "runtime.kernel_load_start_hook.add")
LOADED = Feature(
    (_LOADED,),
    "Regions of kernels that come from Triton's cache have numbers in place of names, and ikp "
    "can't tell that a kernel lost its marks.",
    "Everything else works.",
)

_INTERPRET = Private(_KNOBS, "runtime.interpret")
INTERPRET = Feature(
    (_INTERPRET,),
    "Whether kernels are interpreted is read from TRITON_INTERPRET in the environment alone.",
    "Everything else works.",
)

_GENERATOR = Private("triton.compiler.code_generator", "CodeGenerator")
_BASE_TYPE = Private(_CORE, "base_type")
_BASE_VALUE = Private(_CORE, "base_value")
_UNRECORDED = "Kernels that are compiled get no buffer (prof is None) and are not recorded."
VERBS = Feature(
    (
        _GENERATOR,
        _BASE_TYPE,
        _BASE_VALUE,
        Private("triton.language", "inline_asm_elementwise", takes=("is_pure", "pack")),
        *(
            Private(_SEMANTIC, f"TritonSemantic.{method}")
            for method in ("to_tensor", "cast", "bitcast", "not_equal", "and_", "or_")
        ),
        Private("triton.backends.nvidia.compiler", "CUDAOptions.backend_name"),
    ),
    _UNRECORDED,
)

_BUILDER = Private("triton.runtime.interpreter", "interpreter_builder")
_EXECUTOR = Private("triton.runtime.interpreter", "GridExecutor")
INTERPRETER = Feature(
    (
        _BUILDER,
        _EXECUTOR,
        Private("triton.runtime.interpreter", "InterpreterBuilder.set_grid_idx"),
        Private("triton.runtime.interpreter", "InterpreterBuilder.set_grid_dim"),
    ),
    "Kernels in Triton's interpreter get no buffer (prof is None) and are not recorded.",
)

_IR = Private("triton._C.libtriton", "ir.parse_mlir_module")
READS_BACK = Feature(
    (_IR,),
    "Records can't be placed by hand in a kernel's IR (ttgir=), and why a kernel with marks fails "
    "to compile is not looked into.",
    "Everything else works.",
)

_TRIAL = Private("triton.runtime.autotuner", "Autotuner._bench")
AUTOTUNING = Feature(
    (_TRIAL,),
    "An autotuner's trials of kernels with marks record, too, each over the one before it.",
    "Everything else works.",
)

TRITON = Foreign(
    "Triton",
    "triton",
    ("3.6", "3.9"),
    (STAGES, LOADED, INTERPRET, VERBS, INTERPRETER, READS_BACK, AUTOTUNING),
)


_Called = Callable[..., object]


def install(
    loading: _Called,
    stages: Callable[[_Called | None], _Called],
    trials: Callable[[_Called], _Called],
) -> bool:
    """Put ikp's hooks on Triton, around those set there; a second call changes nothing.

    Args:
        loading: is called before each kernel is loaded.
        stages: wraps the hook on the compiler's stages, or None where there is none.
        trials: wraps the function by which an autotuner runs a configuration.

    Returns:
        Whether kernels can record as they run here: compiled, or interpreted.
    """
    can_record = TRITON.has(INTERPRETER if interprets() else VERBS)
    if TRITON.has(LOADED):
        _runtime().kernel_load_start_hook.add(loading)
    if TRITON.has(STAGES):
        previous = _runtime().add_stages_inspection_hook
        if not hasattr(previous, "is_ikp"):
            _runtime().add_stages_inspection_hook = stages(previous)
    if TRITON.has(AUTOTUNING):
        trial = _autotuner()._bench
        if not hasattr(trial, "is_ikp"):
            _autotuner()._bench = trials(trial)
    return can_record


def stages_hook() -> object:
    """Return the hook on the compiler's stages; None for none."""
    return _runtime().add_stages_inspection_hook if TRITON.has(STAGES) else None


@cache
def _runtime() -> Untyped:
    """Return Triton's settings; each launch asks for some of them."""
    return Private(_KNOBS, "runtime").find()


@cache
def _autotuner() -> Untyped:
    return Private("triton.runtime.autotuner", "Autotuner").find()


def interprets() -> bool:
    """Return whether Triton interprets kernels in this process."""
    if TRITON.has(INTERPRET):
        return bool(_runtime().interpret)
    return os.environ.get("TRITON_INTERPRET", "").lower() in {"1", "true", "on", "yes", "y"}


def code_generator() -> type:
    """Return the class of the code generator, which traces one function."""
    found: type = _GENERATOR.find()
    return found


def value_classes() -> tuple[Untyped, Untyped]:
    """Return the base classes of values that Triton carries, and of their types."""
    return _BASE_VALUE.find(), _BASE_TYPE.find()


def running() -> Untyped:
    """Return the interpreter's builder, with ``grid_idx`` and ``grid_dim`` of its program."""
    return _BUILDER.find()


def launching() -> type:
    """Return the class whose methods launch interpreted kernels."""
    found: type = _EXECUTOR.find()
    return found


def parsed(path: str, context: object) -> Untyped:
    """Return the module in a file of the compiler's IR."""
    made = _IR.find()(path, context)
    made.context = context
    return made
