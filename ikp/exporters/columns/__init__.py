"""A trace's tables as checked, compressed columns, many rows to a chunk; knows no file format."""
