"""What a run gives to others: the trained team with its manifest and cards, and a page to read.

Imports ``evaluation``, ``spec``, ``durable`` and what stands below them; never a service.
"""
