"""The REST API and the page under load: `python -m benchmarks.api`."""
