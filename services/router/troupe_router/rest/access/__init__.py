"""Access to the REST API: who may ask what, how often, from where, and on which address."""
