"""Plain AG2 1.x: a group chat (its network's `discussion`) of a user, a solver and a verifier.

The user posts the question and leaves when the verifier approves, after two rounds at most. Each
has a connection of its own: on a shared one the verifier would hear the user's words a turn late.
"""

from contextlib import AsyncExitStack

from ag2 import Agent
from ag2.knowledge import MemoryKnowledgeStore
from ag2.network import EV_TEXT, Hub, HubClient, LocalLink, Passport
from team import config

ROUNDS = 2
PROMPTS = {
    "solver": "You are the solver.",
    "verifier": "You are the verifier. Say APPROVE or REVISE.",
}


async def said_by(user, speaker):
    """The text of the speaker's next message."""
    spoke = await user.next_envelope(
        predicate=lambda e: e.event_type == EV_TEXT and e.sender_id == speaker.agent_id
    )
    return spoke.event_data["text"]


async def run(task):
    """A group chat of three."""
    hub = await Hub.open(MemoryKnowledgeStore())
    async with AsyncExitStack() as ends:
        ends.push_async_callback(hub.close)

        async def connection():
            return await ends.enter_async_context(HubClient(LocalLink(hub), hub=hub))

        user = await (await connection()).register_human(Passport(name="user"))
        solver, verifier = [
            await (await connection()).register(
                Agent(name, prompt=prompt, config=config()), attach_plugin=False
            )
            for name, prompt in PROMPTS.items()
        ]
        chat = await user.open(type="discussion", target=list(PROMPTS))
        words = task["question"]
        for _ in range(ROUNDS):
            await user.send(chat.channel_id, words)
            solution = await said_by(user, solver)
            if "APPROVE" in await said_by(user, verifier):
                break
            words = "Once more, please."
        return solution
