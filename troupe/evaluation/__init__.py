"""Measures policies on held-out tasks: plans, play, estimates and reports.

Uses the episode player of training, so its figures are comparable with those of a job's own
evaluation. Never trains and never changes weights.
"""
