"""What a task family must offer, and how one is loaded. May import `spec` and `sandbox`."""
