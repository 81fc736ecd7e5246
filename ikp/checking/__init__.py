"""The A/B check: a kernel with records is compared with the plain one, in a process of its own.

There, both run on copies of the memory that a launch reaches, at the same addresses. A kernel that
faults or never ends costs that process, and not the program.
"""
