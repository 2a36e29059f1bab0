"""Points of players and their ranks."""
