"""Intervals of whole numbers: the first belongs to them, the last does not."""
