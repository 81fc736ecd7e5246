"""``DamagedError``: the error for bytes that are not the messages that they should be."""

from __future__ import annotations


class DamagedError(Exception):
    """The bytes are not protobuf messages, or not those that they should be."""
