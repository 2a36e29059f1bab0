"""Training from Python: ``troupe.train`` on a data set and functions of the calling process.

Owns what a script or a notebook needs: a job spec from arguments, the process that judges with the
caller's functions, and the results of a run. Never plays, learns or launches: the platform does.
"""
