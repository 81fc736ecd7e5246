"""Protobuf messages, many at a time; knows no trace."""
