"""How many candidates an action gets, and which one goes on. Pure; may import `spec`."""
