"""Models: loading, log probabilities, kernels, attention, packing, ranks. No Redis."""
