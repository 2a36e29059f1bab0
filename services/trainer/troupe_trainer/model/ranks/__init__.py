"""One trainer on several processes: rank 0 serves and tells, the others compute with it."""
