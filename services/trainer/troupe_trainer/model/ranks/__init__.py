"""One trainer on several processes: rank 0 serves and directs, the others compute with it."""
