"""Everything that is to be measured on the first day with a GPU, as one command."""
