"""Encoding and parsing of protobuf messages, many at a time; independent of traces."""
