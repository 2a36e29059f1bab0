"""A run as one HTML page without scripts, links or other files: ``troupe report``.

Uses the standard library and ``evaluation``; foreign texts go through ``texts``.
"""
