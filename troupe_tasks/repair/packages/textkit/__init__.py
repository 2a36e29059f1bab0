"""Cleaning and counting words."""
