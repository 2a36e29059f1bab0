"""The web page: its files, and the routes that serve them."""
