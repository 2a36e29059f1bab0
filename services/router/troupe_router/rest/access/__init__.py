"""Who may ask what of the REST API, how often, from where, and on which address."""
