"""Trips along stops of a line."""
