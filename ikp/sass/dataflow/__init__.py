"""What is needed, on its way or alike before each instruction; and so, what is free."""
