"""What a job is: record, store, states, queue, plan, checks and commands. Starts nothing."""
