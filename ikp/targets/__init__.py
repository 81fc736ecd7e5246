"""Device code for one instruction set each, generated from the ABI; knows no DSL."""
