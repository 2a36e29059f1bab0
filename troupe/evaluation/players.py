"""Rollout ports for evaluations only: chat servers, and teams of several players.

Each answers ``generate`` as a rollout replica does. Never judges and never keeps score.
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
    """RolloutPort of one episode: the player of each seat, and the tokens that it used.

    In an evaluation each policy has the name of its agent, so the policy selects the player.
    """

    def __init__(self, seats: Mapping[str, RolloutPort]) -> None:
        self._seats = seats
        self.num_prompt_tokens = 0
        self.num_sampled_tokens = 0

    async def generate(
        self, request: GenerateRequest[Observation], *, timeout_s: float
    ) -> Generation:
        """Forward the request to the policy's player."""
        generation = await self._seats[request.policy].generate(request, timeout_s=timeout_s)
        self.num_prompt_tokens += generation.num_prompt_tokens
        self.num_sampled_tokens += generation.num_sampled_tokens
        return generation
