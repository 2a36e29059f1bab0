"""Persistence: checkpoints, their compatibility with a spec, and exported artifacts."""
