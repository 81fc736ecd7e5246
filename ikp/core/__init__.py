"""The record ABI, its decoder, and a trace as columns; knows no DSL and no file format."""
