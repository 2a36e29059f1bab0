"""Every shape that the REST API speaks, once: base says how they are named."""
