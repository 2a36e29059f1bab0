"""Who is asked next is a model's choice: a router seat, and the same agents in a fixed order."""

from team import ask


def run(task):
    """A router names the solver or the verifier, or ends; three of them are asked at most."""
    said, seen = "", [task["question"]]
    for _ in range(3):
        choice = ask("You are the router. Say solver, verifier or done.", "\n".join(seen))
        if "done" in choice:
            break
        agent = "verifier" if "verifier" in choice else "solver"
        words = ask(f"You are the {agent}.", "\n".join(seen))
        said = words if agent == "solver" else said
        seen.append(f"[{agent}]: {words}")
    return said


def fixed(task):
    """Solver, verifier, solver, whatever they say."""
    said, seen = "", [task["question"]]
    for agent in ("solver", "verifier", "solver"):
        words = ask(f"You are the {agent}.", "\n".join(seen))
        said = words if agent == "solver" else said
        seen.append(f"[{agent}]: {words}")
    return said
