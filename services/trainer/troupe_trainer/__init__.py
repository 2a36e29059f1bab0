"""The trainer: collects groups, learns from them, keeps checkpoints and publishes weights."""
