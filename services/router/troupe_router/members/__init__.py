"""Membership: replicas with heartbeats and expiry, and what each of them works on."""
