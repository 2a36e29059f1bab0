"""Plain AG2 before 1.0 (`import autogen`): a chat of two, a group chat, a tool."""

import os

from autogen import ConversableAgent, GroupChat, GroupChatManager, UserProxyAgent


def config():
    model = {
        "model": "gpt-4o-mini",
        "api_type": "openai",
        "api_key": os.environ["OPENAI_API_KEY"],
        "base_url": os.environ["OPENAI_BASE_URL"],
    }
    return {"config_list": [model]}


def approved(message):
    return "APPROVE" in (message.get("content") or "")


def agent(name, system, **more):
    return ConversableAgent(
        name,
        system_message=system,
        description=name,
        llm_config=config(),
        human_input_mode="NEVER",
        **more,
    )


def last_of(result, name):
    said = [m["content"] for m in result.chat_history if m.get("name") == name]
    return (said or [""])[-1]


def run(task):
    """The verifier asks the solver, twice."""
    solver = agent("solver", "You are the solver.", is_termination_msg=approved)
    verifier = agent("verifier", "You are the verifier. Say APPROVE or REVISE.")
    result = verifier.initiate_chat(solver, message=task["question"], max_turns=2)
    return last_of(result, "solver")


def group(task):
    """A group chat, whose manager asks a model who speaks next."""
    solver = agent("solver", "You are the solver.")
    verifier = agent("verifier", "You are the verifier. Say APPROVE or REVISE.")
    user = UserProxyAgent(
        "user",
        human_input_mode="NEVER",
        code_execution_config=False,
        is_termination_msg=approved,
    )
    chat = GroupChat([user, solver, verifier], messages=[], max_round=4)
    manager = GroupChatManager(chat, llm_config=config(), is_termination_msg=approved)
    return last_of(user.initiate_chat(manager, message=task["question"]), "solver")
