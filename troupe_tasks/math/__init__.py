"""Math: a tool agent computes in a sandbox, a reasoner answers; judged by exact equivalence."""
