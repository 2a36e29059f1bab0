"""Starts, watches and ends processes of this machine; the contract of every launcher."""
