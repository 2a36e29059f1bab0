"""Workflows: which agent acts when. May import `spec` and `tasks`."""
