"""PTX as the language is: read as statements and as control flow, and marked."""
