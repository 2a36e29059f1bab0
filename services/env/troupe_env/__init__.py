"""The env service: judges actions by pure functions over opaque state. Stateless."""
