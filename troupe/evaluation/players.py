"""Rollout ports of an evaluation that no job has: chat servers, and teams of several players.

Each answers one ``generate`` as a rollout replica does. Never judges and never keeps score.
"""

from collections.abc import Mapping

from troupe.candidates import GenerateRequest, Generation
from troupe.clients.chat import ChatClient
from troupe.episodes.ports import RolloutPort
from troupe.tasks.family import Observation


class ChatPlayer:
    """RolloutPort on a model of an OpenAI-compatible server."""

    def __init__(self, client: ChatClient, model: str) -> None:
        self._client = client
        self._model = model

    async def generate(
        self, request: GenerateRequest[Observation], *, timeout_s: float
    ) -> Generation:
        """Completions as text; token ids stay with the server."""
        return await self._client.complete(self._model, request, timeout_s=timeout_s)


class TeamPlayer:
    """RolloutPort of one episode: the seat of each agent, and the tokens that it used.

    Each policy of an evaluation is called as its agent, so the policy says who is asked.
    """

    def __init__(self, seats: Mapping[str, RolloutPort]) -> None:
        self._seats = seats
        self.num_prompt_tokens = 0
        self.num_sampled_tokens = 0

    async def generate(
        self, request: GenerateRequest[Observation], *, timeout_s: float
    ) -> Generation:
        """Ask the seat of the policy."""
        generation = await self._seats[request.policy].generate(request, timeout_s=timeout_s)
        self.num_prompt_tokens += generation.num_prompt_tokens
        self.num_sampled_tokens += generation.num_sampled_tokens
        return generation
