"""What the disassembler prints, and what each instruction is and does by its text."""
