"""The `troupe` command: parses, calls, prints. May import any room of the SDK."""
