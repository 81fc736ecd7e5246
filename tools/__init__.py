"""Scripts that write docs and schemas, measure the code, and try ikp on others' programs."""
