"""Algorithms: a group's advantages, and the loss. Pure; torch only in `losses`."""
