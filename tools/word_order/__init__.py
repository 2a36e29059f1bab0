"""Makes the table by which the writing tasks judge the order of words."""
