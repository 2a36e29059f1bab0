"""Makers of committed files. No part of the product: the wheel leaves this folder out."""
