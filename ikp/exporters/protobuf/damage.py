"""What bytes are refused with that are not what they must be."""

from __future__ import annotations


class DamagedError(Exception):
    """The bytes are not protobuf messages, or not those that they should be."""
