"""What the machine code of a kernel holds between its clock reads; needs no GPU and no DSL."""
