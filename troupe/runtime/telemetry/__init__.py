"""Logs, metrics and traces of every process. Never fails the work that it observes."""
