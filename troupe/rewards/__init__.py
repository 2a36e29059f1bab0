"""What an action is worth: mixes team and local terms, and adds a term that a job names."""
