"""The services' foundation: streams, weights, serving, launching, telemetry, TLS. Internal."""
