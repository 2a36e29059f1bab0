"""Images between tasks, wires and models: PNG, wire forms, patches. Imports `tasks` and `api`."""
