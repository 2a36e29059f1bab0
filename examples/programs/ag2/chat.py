"""Plain AG2 1.x: a group chat (its network's `discussion`) of a user, a solver and a verifier.

The user posts the question and leaves when the verifier approves, after two rounds at most. Each
has a connection of its own: on a shared one the verifier would hear the user's words a turn late.
An agent that says nothing passes: AG2 posts no empty message, and the chat would wait for it.
"""

from contextlib import AsyncExitStack

from ag2 import Agent
from ag2.knowledge import MemoryKnowledgeStore
from ag2.network import EV_TEXT, Channel, Hub, HubClient, LocalLink, Passport, default_handler
from team import config

ROUNDS, NOTHING = 2, "(nothing)"
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


def answering(hub_client, agent):
    """Take the agent's turns as AG2 does, and pass where it had nothing to say."""

    async def heard(envelope):
        await default_handler(envelope, agent)
        channel = envelope.channel_id
        if envelope.event_type == EV_TEXT and await hub_client.can_send(channel, agent.agent_id):
            metadata = await hub_client.get_channel(channel)
            await Channel(metadata=metadata, client=agent).send(NOTHING)

    agent.on_envelope(heard)
    return agent


async def run(task):
    """A group chat of three."""
    hub = await Hub.open(MemoryKnowledgeStore())
    async with AsyncExitStack() as ends:
        ends.push_async_callback(hub.close)

        async def connection():
            return await ends.enter_async_context(HubClient(LocalLink(hub), hub=hub))

        async def joined(name):
            client = await connection()
            agent = Agent(name, prompt=PROMPTS[name], config=config())
            return answering(client, await client.register(agent, attach_plugin=False))

        user = await (await connection()).register_human(Passport(name="user"))
        solver, verifier = [await joined(name) for name in PROMPTS]
        chat = await user.open(type="discussion", target=list(PROMPTS))
        words = task["question"]
        for _ in range(ROUNDS):
            await user.send(chat.channel_id, words)
            solution = await said_by(user, solver)
            if "APPROVE" in await said_by(user, verifier):
                break
            words = "Once more, please."
        return solution
