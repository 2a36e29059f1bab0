"""Episodes: tickets, the workers that play them, routing to replicas. No HTTP, no run folder."""
