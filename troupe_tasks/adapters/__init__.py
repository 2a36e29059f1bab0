"""Task families around environments of other projects. Needs the ``adapters`` extra."""
