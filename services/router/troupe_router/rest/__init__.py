"""HTTP only: routes, access, problems and event streams over jobs, run folders and members."""
