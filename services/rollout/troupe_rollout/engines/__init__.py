"""Inference engines that ship with the rollout service."""
