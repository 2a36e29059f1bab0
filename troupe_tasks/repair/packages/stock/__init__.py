"""A store's shelves and orders."""
