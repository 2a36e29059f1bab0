"""Every request and response model of the REST API; ``base`` says how they are named."""
