"""Episodes: players of running jobs, workers that play tickets, routing to replicas.

Runs inside the router or as processes of its own (`python -m troupe_router.play`). May import jobs
(to read records) and members; no HTTP, no run folder, no conductor.
"""
