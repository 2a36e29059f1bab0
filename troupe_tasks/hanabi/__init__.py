"""Hanabi: two to five seats that see every hand but their own, and share one score."""

from troupe_tasks.hanabi.family import Hanabi, HanabiParams

__all__ = ["Hanabi", "HanabiParams"]
