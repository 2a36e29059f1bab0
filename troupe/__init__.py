"""Troupe: train teams of LLM agents with on-policy reinforcement learning.

Importing this package loads no torch and opens no connection.
"""

__version__ = "0.1.0"
