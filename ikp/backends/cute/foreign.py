"""What ``ikp`` uses of CuTe DSL without a promise that it stays."""

from __future__ import annotations

from typing import Any

from ikp.backends.foreign import Feature, Foreign, Private

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

CUTE = Foreign("CuTe DSL", "nvidia-cutlass-dsl", ("4.6", "4.8"), (VERBS,))


def insertion_point() -> Any:
    """Return where the operation that is traced next goes.

    Raises:
        ValueError: nothing is being traced.
    """
    return Private(_IR, "InsertionPoint").find().current


def context() -> Any:
    """Return the context of what is being traced."""
    return Private(_IR, "Context").find().current


def types() -> Any:
    """Return the makers of the types of operands."""
    return _TYPES.find()


def assembly(code: str, constraints: str, operands: list[Any], result: Any) -> Any:
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


def rewrite(operation: Any, code: str) -> None:
    """Replace the text of an operation of assembly."""
    operation.attributes["asm_string"] = _STRING.find()(code)


def bits(value: Any) -> Any:
    """Return a 32-bit float's bits as an integer."""
    return _BITCAST.find()(types().i32(), value)
