"""Runs inside the worker's interpreter: standard library only, nothing of Troupe, no environment.

The worker starts it as the top-level package ``inside``; the service imports only ``wire`` of it.
"""
