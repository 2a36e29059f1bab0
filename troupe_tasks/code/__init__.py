"""Code: a tester proposes tests, a coder writes the program that must pass the hidden ones."""

from troupe_tasks.code.family import Code, CodeParams

__all__ = ["Code", "CodeParams"]
