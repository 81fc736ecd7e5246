"""What ``ikp`` uses of Triton's compiler and interpreter without a promise that it stays.

What launches kernels is in ``unedited.foreign``: that must not load Triton before the program does.
"""

from __future__ import annotations

import os
from typing import Any

from ikp.probing import Feature, Foreign, Private

_KNOBS = "triton.knobs"
_CORE = "triton.language.core"
_SEMANTIC = "triton.language.semantic"

_STAGES = Private(_KNOBS, "runtime.add_stages_inspection_hook")
STAGES = Feature(
    (_STAGES,),
    "Kernels record without ikp's passes over their code: a kernel's end is recorded only where "
    "ikp.finish() stands, records stay where they are written (schedule=True has no effect), and "
    "kernels that need a pass (warp-specialised ones, noinline functions with verbs, "
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
SCHEDULED = Feature(
    (_IR,),
    "Kernels can't be marked after scheduling (level='scheduled'), and why one with marks fails to "
    "compile is not looked into.",
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
    (STAGES, LOADED, INTERPRET, VERBS, INTERPRETER, SCHEDULED, AUTOTUNING),
)


def stages_hook() -> Any:
    """Return the hook on the compiler's stages that is set now."""
    return _runtime().add_stages_inspection_hook


def set_stages_hook(hook: Any) -> None:
    """Set the hook on the compiler's stages."""
    _runtime().add_stages_inspection_hook = hook


def on_load(function: Any) -> None:
    """Have a function called before each kernel is loaded; a second call changes nothing."""
    _LOADED.find()(function)


def interprets() -> bool:
    """Return whether Triton interprets kernels in this process."""
    if TRITON.has(INTERPRET):
        return bool(_INTERPRET.find())
    return os.environ.get("TRITON_INTERPRET", "").lower() in {"1", "true", "on", "yes", "y"}


def code_generator() -> Any:
    """Return the class of what traces one function."""
    return _GENERATOR.find()


def value_classes() -> tuple[Any, Any]:
    """Return the base classes of values that Triton carries, and of their types."""
    return _BASE_VALUE.find(), _BASE_TYPE.find()


def running() -> Any:
    """Return what the interpreter says of the program that it runs: ``grid_idx``, ``grid_dim``."""
    return _BUILDER.find()


def launching() -> Any:
    """Return the class whose methods launch interpreted kernels."""
    return _EXECUTOR.find()


def trial() -> Any:
    """Return the method by which an autotuner runs one configuration."""
    return _TRIAL.find()


def set_trial(function: Any) -> None:
    """Replace the method by which an autotuner runs one configuration."""
    Private("triton.runtime.autotuner", "Autotuner").find()._bench = function


def parsed(path: str, context: Any) -> Any:
    """Return the module in a file of the compiler's IR."""
    made = _IR.find()(path, context)
    made.context = context
    return made


def _runtime() -> Any:
    return Private(_KNOBS, "runtime").find()
