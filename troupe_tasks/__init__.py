"""Built-in task families, data sets and adapters to environments of others, on the public SDK."""
