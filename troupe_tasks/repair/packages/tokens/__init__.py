"""Fields and options in lines of text."""
