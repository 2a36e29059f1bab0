"""Runs inside the sandbox, by its source text: one program on one input, and what it did.

A run holds one case and nothing else of the job: no other case, no expected output, no checker of
the judged program. So a program that takes its run over gains nothing: it can only report an
output, which is what it is asked for. Standard library only, and nothing of Troupe: these files
travel as text, joined by ``troupe_tasks.code.judge``.
"""
