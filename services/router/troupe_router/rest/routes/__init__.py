"""One file a resource of the REST API: its paths, and how an answer is filled."""
