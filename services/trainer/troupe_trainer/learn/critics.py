"""The critics of a job: one for each policy, or one for the team.

Owns what a critic reads: the agent's prompt as it was sampled from, or what all agents saw.
Never computes an advantage.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from transformers import AutoTokenizer

from troupe.api.records.v1 import records_pb2 as pb
from troupe.errors import InvalidArgumentError, JobFailedError
from troupe.spec.algorithm import CriticSpec
from troupe.spec.critics import TEAM, critic_name, critic_network
from troupe.spec.job import JobSpec
from troupe.spec.vision import critic_refusal
from troupe_trainer.learn.critic import Critic, Prompt
from troupe_trainer.learn.learner import Learner
from troupe_trainer.learn.vocabulary import check_same_tokens
from troupe_trainer.model.learner_state import LearnerState, state_of
from troupe_trainer.model.model import PolicyModel
from troupe_trainer.model.relocation import Move
from troupe_trainer.samples import Lesson

_POINTER = "/algorithm/critic/model"


class Critics:
    """The critics of one job. ``view`` is the algorithm's ``needs.values``."""

    def __init__(
        self,
        spec: JobSpec,
        view: Literal["own", "joint"],
        learners: Mapping[str, Learner],
        *,
        device: str,
    ) -> None:
        assert spec.algorithm.critic is not None, "checked when the algorithm was made"
        self._spec: CriticSpec = spec.algorithm.critic
        self._is_joint = view == "joint"
        self._tokenizer: Any = None
        trained = [policy for policy in sorted(learners) if spec.trains(policy)]
        tokens = spec.batch.budget
        self._critics: dict[str, Critic] = {}
        loaded = [learner.model for learner in learners.values()]
        for name, learner in learners.items():
            if learner.model.vision is not None:
                raise InvalidArgumentError(critic_refusal(name), pointer="/algorithm/critic")
        for name in [TEAM] if self._is_joint else trained:
            if self._spec.kind == "head":
                network = learners[name].model
            else:
                policy = spec.policies[trained[0] if self._is_joint else name]
                network_spec = critic_network(self._spec, policy)
                ids = {} if self._is_joint else _shared_ids(policy.model, name, network_spec.model)
                network = PolicyModel(
                    critic_name(name),
                    network_spec,
                    seed=spec.seed,
                    device=device,
                    checkpoint_activations=bool(spec.batch.checkpoint_activations),
                    shares=loaded,
                )
                _check_size(network, name, ids)
                loaded.append(network)
                if self._is_joint:
                    self._tokenizer = _tokenizer(network_spec.model)
            self._critics[name] = Critic(name, self._spec, network, tokens_per_pass=tokens)

    def relocate(self, move: Move) -> None:
        """Move everything that is kept between steps; see `model.relocation`."""
        for critic in self._critics.values():
            critic.relocate(move)

    def prompts(self, group: pb.Group) -> list[Prompt]:
        """What the critic reads at each candidate of ``group``."""
        if self._is_joint:
            return [self._joint_prompt(candidate, group) for candidate in group.candidates]
        by_digest = {prompt.digest: tuple(prompt.token_ids) for prompt in group.prompts}
        return [by_digest[candidate.prompt_digest] for candidate in group.candidates]

    def values(self, policy: str, prompts: Sequence[Sequence[Prompt]]) -> list[list[float]]:
        """The value of each prompt, group by group; a policy without groups needs no critic."""
        if not prompts:
            return []
        critic = self._critics[TEAM if self._is_joint else policy]
        flat = iter(
            critic.values([prompt for group_prompts in prompts for prompt in group_prompts])
        )
        return [[next(flat) for _ in group_prompts] for group_prompts in prompts]

    def learn(self, lessons: Mapping[str, Sequence[Lesson]]) -> dict[str, dict[str, float]]:
        """Train every critic for one step on each policy's lessons; returns metrics by policy."""
        if self._is_joint:
            metrics = self._critics[TEAM].learn(
                [lesson for policy_lessons in lessons.values() for lesson in policy_lessons]
            )
            return dict.fromkeys(lessons, metrics)
        return {
            policy: self._critics[policy].learn(policy_lessons)
            for policy, policy_lessons in lessons.items()
            if policy_lessons
        }

    def states(self) -> dict[str, LearnerState]:
        """States to checkpoint, under names that no policy has."""
        return {critic_name(name): critic.state() for name, critic in self._critics.items()}

    def restore(self, states: Mapping[str, LearnerState]) -> None:
        """Continue from ``states``; raises IncompatibleWeightsError where they do not fit."""
        for name, critic in self._critics.items():
            critic.restore(state_of(states, critic_name(name)))

    def _joint_prompt(self, candidate: pb.Candidate, group: pb.Group) -> Prompt:
        if not candidate.joint_observation:
            raise JobFailedError(
                f"Group {group.group_id} lacks the joint observation that its critic reads. "
                "Run router and trainer of one version."
            )
        ids = self._tokenizer(candidate.joint_observation, add_special_tokens=False)["input_ids"]
        return tuple(ids[-self._spec.max_tokens :])


def _shared_ids(model: str, policy: str, critic: str) -> Mapping[str, int]:
    """The vocabulary that policy and critic share; empty, without a look, for one model."""
    if critic == model:
        return {}
    return check_same_tokens(model, policy, critic, role="critic", pointer=_POINTER)


def _check_size(network: PolicyModel, policy: str, ids: Mapping[str, int]) -> None:
    needed = max(ids.values(), default=-1) + 1
    if network.vocabulary_size < needed:
        raise InvalidArgumentError(
            f"The critic of policy '{policy}' has embeddings of {network.vocabulary_size} tokens, "
            f"and its tokenizer numbers of {needed}. Take a critic with at least as many.",
            pointer=_POINTER,
        )


def _tokenizer(model: str) -> Any:
    try:
        return AutoTokenizer.from_pretrained(model)
    except (OSError, ValueError, KeyError) as error:
        raise InvalidArgumentError(
            f"The tokenizer of the critic's model '{model}' can't be loaded: {error}. Give a model "
            "folder that has one.",
            pointer=_POINTER,
        ) from error
