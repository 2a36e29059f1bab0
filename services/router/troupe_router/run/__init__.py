"""The run folder of a job, written and read: metrics, episodes, logs, summary."""
