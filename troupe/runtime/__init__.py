"""What services run on: streams, weights, serving, launching, telemetry, TLS. No user needs it."""
