"""A folder for the import path of a CPU server; with a GPU the real kernels are imported."""
