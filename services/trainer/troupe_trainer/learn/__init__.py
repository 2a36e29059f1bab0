"""Learning: groups in; credit, critic and optimizer step; outcome out. No publishing."""
