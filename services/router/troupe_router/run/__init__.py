"""What a job leaves in its run folder, written and read: metrics, episodes, logs, summary."""
