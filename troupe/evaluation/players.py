"""Rollout ports of an evaluation: scripted players, served weights, chat servers, whole teams.

Each answers one ``generate`` as a rollout replica does. Never judges and never keeps score.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

from troupe.clients.chat import ChatClient
from troupe.episodes.ports import Generation, RolloutPort, Sampled
from troupe.errors import DeadlineError
from troupe.evaluation.environment import WatchedEnv
from troupe.ids import prompt_digest
from troupe.runtime.engines.engine import Engine, EngineRequest
from troupe.spec.job import SamplingSpec
from troupe.tasks.family import Observation, TaskFamily
from troupe.tasks.optional import required_policy

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class CountedGeneration(Generation):
    """A generation whose server counts tokens and does not show them."""

    num_prompt_tokens: int = 0
    num_sampled_tokens: int = 0


class ScriptedPlayer:
    """RolloutPort of a family's own player in one episode; it is told the true state."""

    def __init__(
        self, family: TaskFamily, kind: Literal["scripted", "random"], env: WatchedEnv
    ) -> None:
        self._act = required_policy(
            family,
            "demonstrate" if kind == "scripted" else "random_action",
            needed_by=f"policy '{kind}'",
            instead="evaluate another policy",
        )
        self._env = env

    async def generate(
        self,
        *,
        policy: str,
        policy_version: int,
        observation: Observation,
        num_candidates: int,
        sampling: SamplingSpec,
        seed: int,
        timeout_s: float,
    ) -> Generation:
        """Each policy of an evaluation is called as its agent, so ``policy`` is who acts."""
        state = self._env.state
        texts: list[tuple[str, FinishReason]] = [
            (self._act(state, policy, Random(f"{seed}/{i}")), "stop") for i in range(num_candidates)
        ]
        return _text_generation(observation, texts, policy_version, 0, 0)


class ServedPlayer:
    """RolloutPort on an engine in this process; ``served_as`` is the engine's name of it."""

    def __init__(self, engine: Engine, served_as: str) -> None:
        self._engine = engine
        self._served_as = served_as

    async def generate(
        self,
        *,
        policy: str,
        policy_version: int,
        observation: Observation,
        num_candidates: int,
        sampling: SamplingSpec,
        seed: int,
        timeout_s: float,
    ) -> Generation:
        """Render and sample, as the rollout service does."""
        prompt = self._engine.render(self._served_as, observation)
        request = EngineRequest(
            self._served_as, policy_version, prompt, num_candidates, sampling, seed
        )
        try:
            async with asyncio.timeout(timeout_s):
                result = await self._engine.generate(request)
        except TimeoutError as error:
            raise DeadlineError(
                f"the engine did not answer within limits.generate_timeout_s = {timeout_s:g}"
            ) from error
        candidates = [
            Sampled(c.token_ids, c.logprobs, c.text, c.finish_reason) for c in result.candidates
        ]
        return Generation(
            prompt, prompt_digest(prompt), candidates, result.policy_version, result.engine_s
        )


class ChatPlayer:
    """RolloutPort on an OpenAI-compatible server."""

    def __init__(self, client: ChatClient, model: str) -> None:
        self._client = client
        self._model = model

    async def generate(
        self,
        *,
        policy: str,
        policy_version: int,
        observation: Observation,
        num_candidates: int,
        sampling: SamplingSpec,
        seed: int,
        timeout_s: float,
    ) -> Generation:
        """Completions as text; token ids stay with the server."""
        found = await self._client.complete(
            model=self._model,
            messages=observation,
            sampling=sampling,
            num_choices=num_candidates,
            seed=seed,
            timeout_s=timeout_s,
        )
        texts: list[tuple[str, FinishReason]] = [(c.text, c.finish_reason) for c in found.choices]
        return _text_generation(
            observation, texts, policy_version, found.num_prompt_tokens, found.num_sampled_tokens
        )


class TeamPlayer:
    """RolloutPort of one episode: the seat of each agent, and the tokens that it used."""

    def __init__(self, seats: Mapping[str, RolloutPort]) -> None:
        self._seats = seats
        self.num_prompt_tokens = 0
        self.num_sampled_tokens = 0

    async def generate(
        self,
        *,
        policy: str,
        policy_version: int,
        observation: Observation,
        num_candidates: int,
        sampling: SamplingSpec,
        seed: int,
        timeout_s: float,
    ) -> Generation:
        """Ask the seat of ``policy``."""
        found = await self._seats[policy].generate(
            policy=policy,
            policy_version=policy_version,
            observation=observation,
            num_candidates=num_candidates,
            sampling=sampling,
            seed=seed,
            timeout_s=timeout_s,
        )
        if isinstance(found, CountedGeneration):
            self.num_prompt_tokens += found.num_prompt_tokens
            self.num_sampled_tokens += found.num_sampled_tokens
        else:
            self.num_prompt_tokens += len(found.prompt_token_ids)
            self.num_sampled_tokens += sum(len(c.token_ids) for c in found.candidates)
        return found


def _text_generation(
    observation: Observation,
    texts: Sequence[tuple[str, FinishReason]],
    version: int,
    num_prompt_tokens: int,
    num_sampled_tokens: int,
) -> CountedGeneration:
    """A generation without token ids; its prompt is named by its text."""
    prompt = "\x1e".join(f"{m.role}\x1f{m.content}" for m in observation).encode()
    return CountedGeneration(
        prompt_token_ids=(),
        prompt_digest=prompt_digest(list(prompt)),
        candidates=[Sampled((), (), text, reason) for text, reason in texts],
        policy_version=version,
        engine_s=0.0,
        num_prompt_tokens=num_prompt_tokens,
        num_sampled_tokens=num_sampled_tokens,
    )
