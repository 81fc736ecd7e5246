"""CuTe DSL's private names that ikp uses, by feature: where one is missing, the feature is off."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from functools import wraps
from importlib.util import find_spec
from types import FrameType

from ikp.probing import Feature, Foreign, Private, Untyped
from ikp.verbs.dsl import DslValue

_IR = "cutlass._mlir.ir"
_LLVM = "cutlass._mlir.dialects.llvm"

_POINT = Private(_IR, "InsertionPoint.current")
_CONTEXT = Private(_IR, "Context.current")
_STRING = Private(_IR, "StringAttr.get")
_ASSEMBLY = Private(_LLVM, "inline_asm", takes=("has_side_effects", "is_align_stack"))
_DIALECT = Private(_LLVM, "AsmDialect.AD_ATT")
_BITCAST = Private("cutlass._mlir.dialects.arith", "bitcast")
_TYPES = Private("cutlass.cutlass_dsl", "T")

VERBS = Feature(
    (_POINT, _CONTEXT, _STRING, _ASSEMBLY, _DIALECT, _BITCAST, _TYPES),
    "CuTe kernels get no buffer (prof is None) and are not recorded.",
)

_EXECUTOR = "cutlass.base_dsl.jit_executor"
_FUNCTION = Private(_EXECUTOR, "JitCompiledFunction")
_ARGUMENTS = Private(_EXECUTOR, "ExecutionArgs")
_CONVERTER = Private("cutlass.cute._tvm_ffi_args_spec_converter", "_tvm_ffi_args_spec_converter")
_DSL = Private("cutlass.cutlass_dsl", "CuTeDSL._get_dsl")
_ADVANCE = Private(_IR, "WalkResult.ADVANCE")

CALLS = Feature(
    (
        _FUNCTION,
        _ARGUMENTS,
        Private(
            _EXECUTOR, "JitCompiledFunction.__init__", takes=("dynamic_args", "dynamic_kwargs")
        ),
        Private(_EXECUTOR, "ExecutionArgs.generate_execution_args"),
        Private(_EXECUTOR, "ExecutionArgs.convert_python_pointer_args_for_tvm_ffi"),
        Private(_EXECUTOR, "ExecutionArgs.get_rectified_args"),
        Private("cutlass.cutlass_dsl", "CuTeDSL.register_trace_finalize_hook"),
        _DSL,
        _ADVANCE,
    ),
    "CuTe kernels get no buffer (prof is None) and are not recorded, since calls of compiled "
    "functions can't be checked: one that was compiled with a buffer and is called with None would "
    "record into memory that may be freed.",
)

TVM_FFI = Feature((_CONVERTER,), "Functions that are compiled for TVM-FFI can't be given a buffer.")

OPERATIONS = "cutlass._mlir_helpers.op"
_PLACED = Private(OPERATIONS, "_LOC_TRANSFORMS")
_OWN_FRAME = Private(OPERATIONS, "_is_framework_stack_frame")
CONTROL = "cutlass.cutlass_dsl.cutlass_ast_decorators"
_LOCATION = Private(_IR, "Location")
_KERNEL_FRAME = "kernel_wrapper"
"""The function of CuTe's that calls the Python function that it traces as a kernel."""

LINES = Feature(
    (
        _PLACED,
        _OWN_FRAME,
        Private(_IR, "Location.callsite"),
        Private(_IR, "Location.is_a_callsite"),
        Private(_IR, "Location.file"),
        Private(_IR, "Location.fused"),
        Private(_IR, "Attribute.parse"),
    ),
    "Code of a CuTe kernel's helpers is named by its own lines alone, not by who calls it.",
)

LOOPS = Feature(
    (Private(CONTROL, "ScfGenerator.scf_execute_dynamic"),),
    "Loops of CuTe kernels are named by the line of a decorator.",
)

_FEATURES = (VERBS, CALLS, TVM_FFI, LINES, LOOPS)
CUTE = Foreign("CuTe DSL", "nvidia-cutlass-dsl", ("4.6", "4.8"), _FEATURES)


def recording() -> bool:
    """Return whether CuTe kernels can be recorded."""
    return CUTE.has(VERBS) and CUTE.has(CALLS)


def compiled_classes() -> tuple[Untyped, Untyped]:
    """Return the class of compiled functions, and that of the arguments of one."""
    return _FUNCTION.find(), _ARGUMENTS.find()


def dsl() -> Untyped:
    """Return the object that traces and compiles."""
    return _DSL.find()()


def set_parameters(converter: Callable[..., object]) -> None:
    """Have a function describe the parameters of functions to TVM-FFI, where that is installed."""
    if find_spec("tvm_ffi") is not None and CUTE.has(TVM_FFI):
        dsl()._tvm_ffi_args_spec_converter = converter  # noqa: SLF001


def parameters() -> Callable[..., object]:
    """Return CuTe's own function that describes parameters to TVM-FFI."""
    found: Callable[..., object] = _CONVERTER.find()
    return found


def on_traced(function: Callable[[object, Untyped, str], None]) -> None:
    """Have a function called with each module that has been traced."""
    dsl().register_trace_finalize_hook(function)


def go_on() -> Untyped:
    """Return the value by which a callback of ``walk`` goes on to the next operation."""
    return _ADVANCE.find()


def assembly_in(operation: Untyped) -> str:
    """Return the text of an operation of assembly."""
    return str(Private(_IR, "StringAttr").find()(operation.attributes["asm_string"]).value)


def insertion_point() -> Untyped:
    """Return the insertion point: the next traced operation goes there.

    Raises:
        ValueError: nothing is being traced.
    """
    return Private(_IR, "InsertionPoint").find().current


def context() -> Untyped:
    """Return the MLIR context of the module that is being traced."""
    return Private(_IR, "Context").find().current


def types() -> Untyped:
    """Return the constructors of the types of operands."""
    return _TYPES.find()


def assembly(code: str, constraints: str, operands: list[DslValue], result: object) -> DslValue:
    """Emit assembly that is never dropped, merged, or moved across memory operations."""
    return _ASSEMBLY.find()(
        result,
        operands,
        code,
        constraints,
        has_side_effects=True,
        is_align_stack=False,
        asm_dialect=_DIALECT.find(),
    )


def rewrite(operation: Untyped, code: str) -> None:
    """Replace the text of an operation of assembly."""
    operation.attributes["asm_string"] = _STRING.find()(code)


def bits(value: DslValue) -> DslValue:
    """Return a 32-bit float's bits as an integer."""
    return _BITCAST.find()(types().i32(), value)


def place(operations: Untyped, change: Callable[[Untyped], Untyped]) -> Callable[[], None]:
    """Have a function change the location of each traced operation; return a function to undo that.

    Functions of CuTe's stay as they are. Libraries make cache keys of the objects that a function
    refers to (QuACK's epilogues), and refuse objects that they can make no key of.

    Args:
        operations: the module ``OPERATIONS``.
        change: takes a location, or None, and returns another.
    """
    if not CUTE.has(LINES):
        return lambda: None
    original = operations._LOC_TRANSFORMS  # noqa: SLF001
    always = (*original.get(), change)
    operations._LOC_TRANSFORMS = ContextVar(original.name, default=always)  # noqa: SLF001
    return lambda: setattr(operations, "_LOC_TRANSFORMS", original)


def place_control(
    control: Untyped, at: Callable[[], AbstractContextManager[object]]
) -> Callable[[], None]:
    """Have loops and branches traced at the location that ``at`` enters; return the undo function.

    Args:
        control: the module ``CONTROL``.
        at: returns a context manager that enters the location of operations without one of their
            own.
    """
    if not CUTE.has(LOOPS):
        return lambda: None
    kind = control.ScfGenerator
    original = kind.scf_execute_dynamic

    @wraps(original)
    def traced(self: object, *args: object, **kwargs: object) -> object:
        with at():
            return original(self, *args, **kwargs)

    kind.scf_execute_dynamic = traced
    return lambda: setattr(kind, "scf_execute_dynamic", original)


def is_own(frame: FrameType) -> bool:
    """Return whether a frame of Python's stack is of CuTe itself, or of ikp's wrapper around it."""
    return frame.f_code.co_filename == __file__ or bool(_OWN_FRAME.find()(frame))


def calls_kernel(frame: FrameType) -> bool:
    """Return whether a frame of CuTe's own calls the function that is traced as a kernel."""
    return frame.f_code.co_name == _KERNEL_FRAME


def has_calls(location: Untyped) -> bool:
    """Return whether a location has the calls that it is in."""
    return bool(location.is_a_callsite())


def called(location: Untyped, callers: Sequence[Untyped]) -> Untyped:
    """Return the location of an operation inlined at the locations of calls, innermost first."""
    return _LOCATION.find().callsite(location, list(callers))


def line(file: str, number: int, column: int, scope: str = "") -> Untyped:
    """Return the location of a line; ``scope`` is the text of MLIR's attribute of its function."""
    kind = _LOCATION.find()
    here = kind.file(file, number, column)
    return kind.fused([here], Private(_IR, "Attribute").find().parse(scope)) if scope else here
