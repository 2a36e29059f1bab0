"""Generators of committed files. Not part of the product: the wheel leaves this folder out."""
