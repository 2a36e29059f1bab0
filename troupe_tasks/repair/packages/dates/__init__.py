"""Days of the year without a calendar library."""
