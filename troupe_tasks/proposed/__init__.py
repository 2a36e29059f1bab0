"""A proposer poses number puzzles, a solver attempts each several times; code checks both."""
