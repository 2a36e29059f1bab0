"""What is kept: checkpoints, their compatibility with a spec, and exported artifacts."""
