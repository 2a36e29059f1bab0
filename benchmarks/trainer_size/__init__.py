"""Whether a trainer of real size fits, counted without a GPU."""
