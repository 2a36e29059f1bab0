"""Plain AutoGen AgentChat: round robin, a selector, a swarm with hand-offs, a tool."""

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import MaxMessageTermination, TextMentionTermination
from autogen_agentchat.teams import RoundRobinGroupChat, SelectorGroupChat, Swarm
from autogen_ext.models.openai import OpenAIChatCompletionClient


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def agents(**solver_has):
    client = OpenAIChatCompletionClient(model="gpt-4o-mini")
    solver = AssistantAgent(
        "solver",
        client,
        system_message="You are the solver.",
        description="solves",
        **solver_has,
    )
    verifier = AssistantAgent(
        "verifier",
        client,
        system_message="You are the verifier. Say APPROVE or REVISE.",
        description="verifies",
    )
    return client, [solver, verifier]


def stop():
    return TextMentionTermination("APPROVE") | MaxMessageTermination(6)


def said(result):
    texts = [m.to_text() for m in result.messages if m.source == "solver"]
    return (texts or [""])[-1]


async def run(task):
    """In turn."""
    _, team = agents()
    chat = RoundRobinGroupChat(team, termination_condition=stop())
    return said(await chat.run(task=task["question"]))


async def with_tool(task):
    """The solver may add, and says then what came of it."""
    _, team = agents(tools=[add], reflect_on_tool_use=True)
    chat = RoundRobinGroupChat(team, termination_condition=stop())
    return said(await chat.run(task=task["question"]))


async def selector(task):
    """A model says who speaks next."""
    client, team = agents()
    chat = SelectorGroupChat(team, model_client=client, termination_condition=stop())
    return said(await chat.run(task=task["question"]))


async def swarm(task):
    """The solver hands over to the verifier, or not."""
    _, team = agents(handoffs=["verifier"])
    chat = Swarm(team, termination_condition=stop())
    return said(await chat.run(task=task["question"]))
