"""A trained team behind an OpenAI-compatible endpoint: `python -m troupe_router.serve`.

A process of its own, without Redis and without a job: it loads a team's weights into an engine, and
plays its workflow for each request to the team. May import rest's keys, certificates and server.
"""
