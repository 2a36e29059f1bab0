"""Rewards of actions: mixes team and local terms, and adds the reward function of a job."""
