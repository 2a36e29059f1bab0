"""Writing for two (CoMLRL): a pair of texts that must fit each other, and what they are about."""
