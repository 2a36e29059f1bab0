"""One file per resource of the REST API: its paths, and how its answers are filled."""
