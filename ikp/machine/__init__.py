"""What a kernel's machine code says, read from the disassembler's text; knows no language."""
