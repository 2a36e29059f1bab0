"""Money in cents, and books of payments."""
