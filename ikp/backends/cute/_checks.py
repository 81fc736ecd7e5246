"""Checks of CuTe kernels: each call gets the right kind of buffer, and each range is closed.

**Ranges.** A start word that no record uses is one of a range never closed. Nothing has been
optimised away when the module has been traced, so that is certain. A word may be carried by loops
and branches before its record takes it. CuTe reports an exception in its hook as a bug of its own.
So the hook only notes the range, and the constructor of the compiled function raises the error.

**Buffers.** ``None`` is a constant to CuTe: a function compiled with a buffer takes two words more
than one compiled with ``None``. When a compiled function is called, CuTe compares neither their
number nor their types. It passes them by position in an array that it uses again. With ``None`` in
the place of a buffer, the kernel would get an earlier call's buffer, whose memory may be freed. Its
other parameters would get wrong values. So the specs that a function was compiled for are kept, and
the arguments of each call are compared with them.

CuTe offers no hook for calls. ``watch`` extends two classes of CuTe, whose names are the same from
4.6 to 4.8; without them CuTe kernels are not recorded. TVM-FFI takes its parameters' types from
a function of its own, and an argument as a tuple of numbers: both get the same two words.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from cutlass import Int32, Int64

from ikp.backends.argument import Argument
from ikp.backends.cute import _foreign as foreign
from ikp.backends.cute import _state as state
from ikp.errors import KernelError, UsageError
from ikp.probing import Untyped
from ikp.targets import ptx
from ikp.verbs.dsl import DslValue, never_closed

_ADVANCE = foreign.go_on()


def watch_traced() -> None:
    """Check every module that is traced from now on; a second call changes nothing."""
    foreign.on_traced(check)


def check(owner: object, module: Untyped, name: str) -> None:  # noqa: ARG001 - as CuTe calls it
    """Note the error messages of a traced module's ranges that are never closed."""

    def look(operation: Untyped) -> object:
        region = _opens(operation.operation)
        if region is not None and not _recorded(operation.operation.results[0]):
            unclosed.append(never_closed(region, state.place_of(operation.operation)))
        return _ADVANCE

    unclosed: list[str] = []
    module.operation.walk(look)
    _traced.unclosed = unclosed


def refuse() -> None:
    """Refuse the module that this thread traced last, if a range is never closed there.

    Raises:
        KernelError: a range is not closed; the message has the line that opens it.
    """
    if _traced.unclosed:
        raise KernelError(_traced.unclosed[0])


class _Traced(threading.local):
    """The error messages of the module that a thread traced last."""

    def __init__(self) -> None:
        self.unclosed: list[str] = []


_traced = _Traced()


def _opens(operation: Untyped) -> str | None:
    if operation.name != "llvm.inline_asm":
        return None
    return ptx.opened(foreign.assembly_in(operation))


def _recorded(word: DslValue) -> bool:
    """Return whether a value reaches anything but the ends of loops and branches.

    Values are not compared: CuTe's equality of two would be an instruction of the kernel.
    """
    seen: set[tuple[int, int]] = set()
    ahead = [word]
    while ahead:
        for use in ahead.pop().uses:
            user, at = use.owner.operation, use.operand_number
            into = _carried(user, at)
            if into is None:
                return True
            if (hash(user), at) not in seen:
                seen.add((hash(user), at))
                ahead.extend(into)
    return False


def _carried(user: Untyped, at: int) -> list[DslValue] | None:
    """Return the values that an operand becomes; None where the operation does more than carry."""
    if user.name == "scf.for":  # operands: lower, upper, step, the carried values
        return [user.regions[0].blocks[0].arguments[at - 2], user.results[at - 3]]
    if user.name == "scf.while":
        return [user.regions[0].blocks[0].arguments[at]]
    if user.name == "scf.condition":  # the first operand says whether to go on
        loop = _parent(user)
        return [loop.regions[1].blocks[0].arguments[at - 1], loop.results[at - 1]] if at else None
    if user.name == "scf.yield":
        return list(_yielded(_parent(user), user, at))
    return None


def _yielded(parent: Untyped, user: Untyped, at: int) -> Iterator[DslValue]:
    if parent.name == "scf.while":
        yield parent.regions[0].blocks[0].arguments[at]
        return
    if parent.name == "scf.for":
        yield user.block.arguments[at + 1]
    yield parent.results[at]


def _parent(operation: Untyped) -> Untyped:
    return operation.parent.operation


_Function: Untyped
_Arguments: Untyped
_Function, _Arguments = foreign.compiled_classes()


@dataclass(frozen=True, slots=True)
class _Slot:
    """A parameter for which a function was compiled with a buffer, or with None."""

    index: int
    name: str
    spec: str | None  # the text of the buffer's spec

    def settled(self, given: object) -> object:
        """Return the argument to pass in the place of ``given``.

        Raises:
            UsageError: the function was compiled for another kind of argument.
        """
        if self.spec is None:
            if isinstance(given, Argument):
                raise UsageError(
                    f"{self._called(given)} but was compiled with None there: the compiled code "
                    "records nothing. Compile it with a buffer, prof.buffer(label); called with "
                    "None, that code records nothing either."
                )
            return given
        if given is None:
            return Argument(None, 0, self.spec)
        if not isinstance(given, Argument):
            raise UsageError(
                f"{self._called(given)} but was compiled with a buffer there. Pass what "
                "prof.buffer(label) returned, or None."
            )
        if given.spec_text != self.spec:
            raise UsageError(
                f"{self._called(given)} but was compiled for a buffer of another kind: "
                f"{_difference(self.spec, given.spec_text)}. Compile it once for each kind, with "
                "a buffer of that kind."
            )
        return given

    def _called(self, given: object) -> str:
        what = (
            "a buffer"
            if isinstance(given, Argument)
            else f"an object of type {type(given).__name__}"
        )
        return f"a compiled CuTe function is called with {what} as its argument {self.name!r},"


class _CheckedArgs(_Arguments):  # type: ignore[misc]
    """The arguments of a function that was compiled with a buffer, or with None, among them."""

    ikp_slots: tuple[_Slot, ...]

    def generate_execution_args(
        self, args: Sequence[object], kwargs: Mapping[str, object]
    ) -> object:
        """Return the words that CuTe passes on, made of checked arguments."""
        return super().generate_execution_args(*self._settled(args, kwargs))

    @property
    def has_pointer_address_arg_specs(self) -> bool:
        """Return True: so TVM-FFI has arguments converted by the method below."""
        return True

    def convert_python_pointer_args_for_tvm_ffi(
        self, args: Sequence[object], kwargs: Mapping[str, object]
    ) -> object:
        """Return the values that TVM-FFI passes on, made of checked arguments."""
        args, kwargs = self._settled(args, kwargs)
        args = tuple(_numbers(each) for each in args)
        kwargs = {name: _numbers(each) for name, each in kwargs.items()}
        return super().convert_python_pointer_args_for_tvm_ffi(args, kwargs)

    def _settled(
        self, args: Sequence[object], kwargs: Mapping[str, object]
    ) -> tuple[tuple[object, ...], dict[str, object]]:
        args, kwargs = list(args), dict(kwargs)
        for slot in self.ikp_slots:
            default = self.signature.parameters[slot.name].default
            if slot.index < len(args):
                args[slot.index] = slot.settled(args[slot.index])
            elif slot.name in kwargs or default is not inspect.Parameter.empty:
                kwargs[slot.name] = slot.settled(kwargs.get(slot.name, default))
        return tuple(args), kwargs


def watch() -> None:
    """Check functions compiled from now on: ranges when compiled, buffers when called."""
    watch_traced()
    foreign.set_parameters(_tvm_parameters)
    if not hasattr(_Function.__init__, "is_ikp"):
        _Function.__init__ = _remembering(_Function.__init__)


def _remembering(init: Callable[..., None]) -> Callable[..., None]:
    signature = inspect.signature(init)

    @functools.wraps(init)
    def made(self: object, *args: object, **kwargs: object) -> None:
        refuse()
        init(self, *args, **kwargs)
        given = signature.bind(self, *args, **kwargs).arguments
        compiled = given.get("dynamic_args") or (), given.get("dynamic_kwargs") or {}
        taken = getattr(self, "execution_args", None)
        if taken is None or not any(compiled):  # loaded from a file: nothing is known of it
            return
        slots = tuple(_slots(taken, *compiled))
        if slots:
            taken.__class__ = _CheckedArgs
            taken.ikp_slots = slots

    made.is_ikp = True  # type: ignore[attr-defined]
    return made


def _slots(taken: Untyped, args: Sequence[object], kwargs: Mapping[str, object]) -> Iterator[_Slot]:
    given = taken.get_rectified_args(tuple(args), kwargs)
    for index, (name, each) in enumerate(zip(taken.signature.parameters, given, strict=False)):
        if each is None or isinstance(each, Argument):
            yield _Slot(index, name, each and each.spec_text)


def _tvm_parameters(
    function: str,
    signature: inspect.Signature,
    args: Sequence[object],
    kwargs: Mapping[str, object],
) -> object:
    """Return TVM-FFI's description of a function's parameters; a buffer is a pair of numbers."""
    plain = [
        each.replace(annotation=each.empty) if each.annotation is Argument else each
        for each in signature.parameters.values()
    ]
    return foreign.parameters()(
        function,
        signature.replace(parameters=plain),
        [_types(each) for each in args],
        {name: _types(each) for name, each in kwargs.items()},
    )


def _types(given: object) -> object:
    return (Int64(0), Int32(0)) if isinstance(given, Argument) else given


def _numbers(given: object) -> object:
    return (given.address, given.slots_bytes) if isinstance(given, Argument) else given


def _difference(compiled: str, given: str) -> str:
    """Return the words in which two specs differ."""
    pairs = zip(compiled.split(" "), given.split(" "), strict=False)
    return ", ".join(f"{a} is compiled in, {b} is given" for a, b in pairs if a != b)
