"""Plain LlamaIndex: a workflow of two steps, and agents that hand over to each other."""

from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent
from llama_index.core.llms import ChatMessage
from llama_index.core.workflow import Event, StartEvent, StopEvent, Workflow, step
from llama_index.llms.openai import OpenAI


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def say(system, user):
    messages = [ChatMessage(role="system", content=system), ChatMessage(role="user", content=user)]
    return (await OpenAI(model="gpt-4o-mini").achat(messages)).message.content


class Solved(Event):
    """The solver has answered."""

    text: str
    question: str


class Team(Workflow):
    """A solver, then a verifier."""

    @step
    async def solve(self, event: StartEvent) -> Solved:
        text = await say("You are the solver.", event.question)
        return Solved(text=text, question=event.question)

    @step
    async def verify(self, event: Solved) -> StopEvent:
        await say("You are the verifier.", f"{event.question}\nSolution: {event.text}")
        return StopEvent(result=event.text)


async def run(task):
    """A workflow of two steps."""
    return str(await Team(timeout=None).run(question=task["question"]))


async def handoff(task):
    """An AgentWorkflow: the solver may add, or hand over to the verifier. Every call streams."""
    llm = OpenAI(model="gpt-4o-mini")
    solver = FunctionAgent(
        name="solver",
        description="solves",
        system_prompt="You are the solver.",
        tools=[add],
        llm=llm,
        can_handoff_to=["verifier"],
    )
    verifier = FunctionAgent(
        name="verifier",
        description="verifies",
        system_prompt="You are the verifier.",
        tools=[],
        llm=llm,
    )
    team = AgentWorkflow(agents=[solver, verifier], root_agent="solver", timeout=None)
    return str(await team.run(user_msg=task["question"]))
