"""The env service: judgement as pure functions over opaque state. Holds nothing between calls."""
