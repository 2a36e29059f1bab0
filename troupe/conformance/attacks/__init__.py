"""Attackers that seek reward without solving a task, and the searches that improve them."""
