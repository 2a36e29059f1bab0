"""What a model is: loading, log probabilities, kernels, attention, packing, ranks. No Redis."""
