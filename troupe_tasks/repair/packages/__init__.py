"""Small packages to break and to repair; each is a repository of its own in a task."""
