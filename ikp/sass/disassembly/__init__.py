"""Disassembly by nvdisasm, parsed: instructions, operands, control bits, effects on registers."""
