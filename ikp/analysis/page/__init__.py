"""A trace as one page: a file that needs nothing else, for people who would rather look."""
