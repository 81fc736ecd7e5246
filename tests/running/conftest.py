"""Sessions on a host of the tests' own."""

from tests.host import host

__all__ = ["host"]
