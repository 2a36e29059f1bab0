"""Plain AG2 1.x: two agents, one with a tool."""

import os

from ag2 import Agent
from ag2.config import OpenAIConfig


def config(**more):
    return OpenAIConfig(
        model="gpt-4o-mini",
        api_key=os.environ["OPENAI_API_KEY"],
        base_url=os.environ["OPENAI_BASE_URL"],
        **more,
    )


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def team(task, tools=(), **more):
    solver = Agent("solver", prompt="You are the solver.", config=config(**more), tools=tools)
    verifier = Agent(
        "verifier",
        prompt="You are the verifier. Say APPROVE or REVISE.",
        config=config(**more),
    )
    review = ""
    for _ in range(2):
        said = str((await solver.ask(task["question"] + review)).body)
        verdict = str((await verifier.ask(f"{task['question']}\nSolution: {said}")).body)
        if "APPROVE" in verdict:
            break
        review = f"\nThe verifier said: {verdict}"
    return said


async def run(task):
    """A loop of two agents."""
    return await team(task)


async def streamed(task):
    """The same, streaming."""
    return await team(task, streaming=True)


async def with_tool(task):
    """The solver may add."""
    return await team(task, tools=[add])
