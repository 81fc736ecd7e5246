"""Assembler for inserted code: encodings of instructions, stalls and scoreboards, chips."""
