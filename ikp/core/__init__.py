"""The record ABI and everything that follows from it; knows no DSL and no file format."""
