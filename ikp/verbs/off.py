"""``Off``: the adapter that records nothing, for a language of a version that ikp can't record."""

from __future__ import annotations

from collections.abc import Callable

from ikp.core.abi import PayloadType
from ikp.core.segment import Spec
from ikp.errors import KernelError
from ikp.verbs.dsl import DslValue, OpenRange, Payload, Place, Region, Unrecorded


class Off:
    """A ``Dsl`` that records nothing; the warning why was given before.

    Args:
        nothing: makes the value that the functional verbs pass on, which the language must carry.
    """

    def __init__(self, nothing: Callable[[], DslValue]) -> None:
        self._nothing = nothing

    def init(self, prof: object) -> None:
        """Record nothing: the session handed out no buffer."""

    def recording(self, verb: str) -> bool:  # noqa: ARG002
        """Return False."""
        return False

    def spec(self) -> Spec:
        """Raise KernelError: the kernel does not record."""
        raise KernelError("this kernel does not record.")

    def region(self, value: object, verb: str) -> Region:  # noqa: ARG002
        """Return a region without a number: nothing is stored."""
        return Region(None)

    def payload(self, value: object, verb: str) -> Payload:  # noqa: ARG002
        """Return no payload."""
        return Payload(PayloadType.NONE)

    def is_condition(self, value: object) -> bool:  # noqa: ARG002
        """Return True: nothing is stored."""
        return True

    def is_index(self, value: object) -> bool:  # noqa: ARG002
        """Return True: nothing is stored."""
        return True

    def condition(self, value: DslValue) -> DslValue:
        """Return the value as it is."""
        return value

    def index(self, value: DslValue) -> DslValue:
        """Return the value as it is."""
        return value

    def both(self, one: DslValue, other: DslValue) -> DslValue:  # noqa: ARG002
        """Return one of them: nothing is stored."""
        return one

    def check_source(self, verb: str, ranges: tuple[OpenRange, ...]) -> None:
        """Accept any: the language's own compiler checks its code."""

    def open(self, region: object, payload: object, given: Payload) -> OpenRange:
        """Return a range that has no start."""
        return self.unrecorded(region, payload, given)

    def token(self, region: object, payload: object, given: Payload, *, opened: bool) -> OpenRange:  # noqa: ARG002
        """Return a range that has no start."""
        return self.unrecorded(region, payload, given)

    def unrecorded(self, region: object, payload: object, given: Payload) -> OpenRange:  # noqa: ARG002
        """Return a range that has no start."""
        return OpenRange(region, None, payload)

    def store_range(self, region: Region, start: DslValue, payload: Payload, place: Place) -> None:
        """Store nothing."""

    def store_instant(self, region: Region, payload: Payload, place: Place) -> None:
        """Store nothing."""

    def store_role(self, region: Region) -> None:
        """Store nothing."""

    def finish(self) -> None:
        """Store nothing."""

    def context(self, ranges: tuple[OpenRange, ...]) -> DslValue:  # noqa: ARG002
        """Return a value that holds nothing."""
        return self._nothing()

    def ranges(self, ctx: object) -> tuple[OpenRange, ...]:  # noqa: ARG002
        """Return one range, of any name: the open ranges are not tracked."""
        return (OpenRange(Unrecorded("any"), None, None),)

    def plain(self, value: object) -> DslValue:
        """Return the Python value of a constant of Triton; others as they are."""
        return getattr(value, "value", value)
