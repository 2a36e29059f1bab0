"""Plain LangGraph: a loop with a conditional edge, a fan-out, an agent with a tool.

Nothing here knows of Troupe. One model name serves every agent; the client reads its address from
OPENAI_BASE_URL, as always.
"""

import operator
from typing import Annotated, TypedDict

from langchain.agents import create_agent
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

llm = ChatOpenAI(model="gpt-4o-mini", temperature=0.3)


class State(TypedDict):
    question: str
    solution: str
    review: str
    rounds: int


async def solver(state):
    seen = state["question"]
    if state.get("review"):
        seen += f"\nThe verifier said: {state['review']}"
    answer = await llm.ainvoke([SystemMessage("You are the solver."), HumanMessage(seen)])
    return {"solution": answer.content, "rounds": state.get("rounds", 0) + 1}


async def verifier(state):
    seen = f"{state['question']}\nSolution: {state['solution']}"
    answer = await llm.ainvoke(
        [SystemMessage("You are the verifier. Say APPROVE or REVISE."), HumanMessage(seen)]
    )
    return {"review": answer.content}


def route(state):
    return END if "APPROVE" in state["review"] or state["rounds"] >= 3 else "solver"


builder = StateGraph(State)
builder.add_node("solver", solver)
builder.add_node("verifier", verifier)
builder.add_edge(START, "solver")
builder.add_edge("solver", "verifier")
builder.add_conditional_edges("verifier", route)
loop_graph = builder.compile()


async def run(task):
    """A solver and a verifier, in a loop."""
    return (await loop_graph.ainvoke({"question": task["question"]}))["solution"]


async def streamed(task):
    """The same graph, read as it is written: every call streams."""
    last = {}
    modes = ["messages", "values"]
    async for mode, part in loop_graph.astream({"question": task["question"]}, stream_mode=modes):
        if mode == "values":
            last = part
    return last["solution"]


class Drafts(TypedDict):
    question: str
    drafts: Annotated[list, operator.add]
    final: str


def draft(state):
    system = f"You are the solver of kind {state['kind']}."
    answer = llm.invoke([("system", system), ("user", state["question"])])
    return {"drafts": [(state["kind"], answer.content)]}


def judge(state):
    drafts = "\n".join(f"{kind}: {text}" for kind, text in sorted(state["drafts"]))
    system = "You are the verifier of drafts. Say which is right."
    answer = llm.invoke([("system", system), ("user", f"{state['question']}\n{drafts}")])
    return {"final": answer.content}


def kinds(state):
    return [
        Send("draft", {"question": state["question"], "kind": kind})
        for kind in ("careful", "fast", "odd")
    ]


fan = StateGraph(Drafts)
fan.add_node("draft", draft)
fan.add_node("judge", judge)
fan.add_conditional_edges(START, kinds, ["draft"])
fan.add_edge("draft", "judge")
fan.add_edge("judge", END)
fan_graph = fan.compile()


def fan_out(task):
    """Three solvers at once, on threads, and a judge of their drafts."""
    return fan_graph.invoke({"question": task["question"]})["final"]


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


counting = create_agent(
    "openai:gpt-4o-mini", tools=[add], system_prompt="You are the solver.", name="solver"
)
checking = create_agent(
    "openai:gpt-4o-mini",
    tools=[],
    system_prompt="You are the verifier. Say APPROVE or REVISE.",
    name="verifier",
)


async def with_tool(task):
    """Two agents of create_agent, one with a tool."""
    asked = [{"role": "user", "content": task["question"]}]
    said = (await counting.ainvoke({"messages": asked}))["messages"][-1].content
    seen = [{"role": "user", "content": f"{task['question']}\nSolution: {said}"}]
    await checking.ainvoke({"messages": seen})
    return said
