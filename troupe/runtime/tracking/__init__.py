"""Experiment trackers: where a job's numbers go besides its run folder.

A tracker is a sink that can never stop a job: the router feeds it from a separate thread, drops
what it cannot take and counts the drops.
"""
