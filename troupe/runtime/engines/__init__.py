"""What an inference engine must offer to a rollout service. Imports no engine."""
