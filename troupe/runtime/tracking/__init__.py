"""Experiment trackers: where a job's numbers go besides its own files.

A tracker is a sink that can never stop a job: the router feeds it from a thread of its own, drops
what it cannot take and counts that.
"""
