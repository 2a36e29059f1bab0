"""Plays episodes: draws candidates, has each judged, groups them. No Redis, no service."""
