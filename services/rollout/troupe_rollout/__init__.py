"""The rollout service: tokens from one inference engine behind a sidecar."""
