"""Plain OpenAI Agents SDK: its default responses API, a tool, a hand-off."""

from agents import Agent, Runner, function_tool


@function_tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


verifier = Agent(
    name="verifier",
    instructions="You are the verifier. Say APPROVE or REVISE.",
    model="gpt-4o-mini",
)


async def run(task):
    """A solver with a tool, then a verifier."""
    solver = Agent(
        name="solver", instructions="You are the solver.", tools=[add], model="gpt-4o-mini"
    )
    said = (await Runner.run(solver, task["question"])).final_output
    await Runner.run(verifier, f"{task['question']}\nSolution: {said}")
    return said


async def handoff(task):
    """The solver may hand over to the verifier."""
    solver = Agent(
        name="solver",
        instructions="You are the solver.",
        handoffs=[verifier],
        model="gpt-4o-mini",
    )
    return str((await Runner.run(solver, task["question"])).final_output)
