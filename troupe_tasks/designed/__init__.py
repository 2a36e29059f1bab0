"""A designer writes a small typed plan, an executor plays it; the plan is read and never run."""
