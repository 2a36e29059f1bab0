"""The models of an endpoint: each agent of the team, and the team itself.

An agent answers the client's messages with its own weights. The team plays its workflow over them
and answers with the last word. Never speaks HTTP.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from troupe.candidates import GenerateRequest
from troupe.episodes.branch import Branch, BranchContext, Draw
from troupe.episodes.call_deadlines import CallDeadlines
from troupe.episodes.ports import RequestPort, RolloutPort, Start
from troupe.episodes.seats import play_out
from troupe.errors import InvalidArgumentError
from troupe.evaluation.players import TeamPlayer
from troupe.rewards.mix import RewardMix
from troupe.samplers.parallel import ParallelSampler
from troupe.spec.job import JobSpec, SamplingSpec
from troupe.tasks.family import BoundedObservation, Observation, in_hermes_form
from troupe.wire.dialect import ModelAnswer, read_answer
from troupe.wire.images import with_images
from troupe.workflows.workflow import Action, Workflow
from troupe_router.serve.request import AskedChat

Note = Callable[["PlayedStep"], None]
"""Hears of each step of a team as it is played."""


@dataclass(frozen=True, slots=True)
class PlayedStep:
    """One act of a team's agent."""

    turn: int
    agent: str
    text: str

    def document(self) -> dict[str, Any]:
        """As clients get it, in the field ``troupe``."""
        return {"turn": self.turn, "agent": self.agent, "text": self.text}


@dataclass(frozen=True, slots=True)
class ServedAnswer:
    """What a model answered: its choices, the tokens used, and a team's steps."""

    choices: Sequence[ModelAnswer]
    num_prompt_tokens: int
    num_sampled_tokens: int
    steps: Sequence[PlayedStep] = ()


class ServedModel(Protocol):
    """One name of ``/v1/models``."""

    @property
    def name(self) -> str:
        """As requests name it."""
        ...

    def facts(self) -> dict[str, Any]:
        """What ``/v1/models`` says of it in the field ``troupe``."""
        ...

    async def answer(self, asked: AskedChat, note: Note, *, timeout_s: float) -> ServedAnswer:
        """Answer; raises InvalidArgumentError for what it cannot be asked."""
        ...


@dataclass(frozen=True, slots=True)
class AgentModel:
    """One agent: its weights, and its instruction where no system message comes first."""

    name: str
    policy: str
    instruction: str
    sampling: SamplingSpec
    rollout: RolloutPort

    def facts(self) -> dict[str, Any]:
        """Its policy and its instruction."""
        return {"kind": "agent", "policy": self.policy, "instruction": self.instruction}

    async def answer(self, asked: AskedChat, note: Note, *, timeout_s: float) -> ServedAnswer:
        """``n`` completions of the client's messages."""
        request = with_images(asked.request(self.instruction), asked.images)
        generation = await self.rollout.generate(
            GenerateRequest(
                self.name,
                0,
                BoundedObservation(request.messages, tools=request.tools),
                asked.num_choices,
                asked.sampled_as(self.sampling),
                asked.seed,
            ),
            timeout_s=timeout_s,
        )
        choices = [
            read_answer(candidate.action, request.tools) for candidate in generation.candidates
        ]
        return ServedAnswer(choices, generation.num_prompt_tokens, generation.num_sampled_tokens)


@dataclass(frozen=True, slots=True)
class TeamModel:
    """The whole team: a request is a task of its family, played as in an evaluation.

    ``spec`` is a job without steps in which each agent is a policy of its own name; ``sampling``
    is how each agent samples where the client says nothing.
    """

    name: str
    spec: JobSpec
    sampling: Mapping[str, SamplingSpec]
    workflow: Workflow
    mix: RewardMix
    env: RequestPort
    players: Mapping[str, RolloutPort]
    deadlines: CallDeadlines

    def facts(self) -> dict[str, Any]:
        """Who is in it."""
        return {"kind": "team", "agents": list(self.spec.workflow.order)}

    async def answer(self, asked: AskedChat, note: Note, *, timeout_s: float) -> ServedAnswer:
        """Play the workflow; the last act's text."""
        text = team_text(asked)
        player = TeamPlayer(self.players)
        context = BranchContext(
            spec=self._spec(asked),
            sampler=ParallelSampler(1),
            rollout=player,
            env=self.env,
            mix=self.mix,
            policy_versions=dict.fromkeys(self.spec.agents, 0),
            round_id="request",
            task_index=0,
            is_eval=True,
            deadlines=self.deadlines,
        )
        start = await self.env.begin_request(
            text,
            observe=list(self.spec.agents),
            timeout_s=self.spec.limits.env_timeout_s,
        )
        branch = _NotedBranch(context, start, note)
        await play_out(self.workflow.run, branch, context.spec)
        if not branch.draws:
            raise InvalidArgumentError(
                "the workflow let no agent act on this request; ask the agents one by one"
            )
        last = branch.draws[-1]
        candidate = last.generation.candidates[last.chosen]
        return ServedAnswer(
            [read_answer(candidate.action, ())],
            player.num_prompt_tokens,
            player.num_sampled_tokens,
            [step_of(draw) for draw in branch.draws],
        )

    def _spec(self, asked: AskedChat) -> JobSpec:
        """The job of one request: the client's sampling and seed."""
        agents = {
            name: agent.model_copy(update={"sampling": asked.sampled_as(self.sampling[name])})
            for name, agent in self.spec.agents.items()
        }
        return self.spec.model_copy(update={"agents": agents, "seed": asked.seed})


class _NotedBranch(Branch):
    """A trajectory that says of each act that it was played."""

    def __init__(self, context: BranchContext, start: Start, note: Note) -> None:
        super().__init__(context, start, 0)
        self._note = note

    async def act(self, agent: str, observation: Observation) -> Action:
        action = await super().act(agent, observation)
        self._note(step_of(self.draws[-1]))
        return action


def step_of(draw: Draw) -> PlayedStep:
    """The act that a draw was."""
    return PlayedStep(draw.turn, draw.agent, draw.generation.candidates[draw.chosen].text)


def team_text(asked: AskedChat) -> str:
    """The text that a team is asked: the only message, or the conversation so far.

    Raises InvalidArgumentError for what a team has no use for.
    """
    refused = {
        "tools": asked.has_tools,
        "response_format": asked.has_form,
        "n": asked.num_choices > 1,
        "stop": bool(asked.stop),
    }
    if field_name := next((name for name, is_asked in refused.items() if is_asked), None):
        raise InvalidArgumentError(
            f"a team takes no '{field_name}': its agents answer each other, and only the last "
            "word is the answer; ask one agent, or leave it out",
            pointer=field_name,
        )
    if asked.images:
        raise InvalidArgumentError(
            "a team takes no images: a request becomes a task of its text; ask one agent",
            pointer="messages",
        )
    messages = asked.messages
    if any(message.role == "system" for message in messages):
        raise InvalidArgumentError(
            "a team takes no system message: each agent has its own instruction; say it in the "
            "user's message, or ask one agent",
            pointer="messages",
        )
    if not messages or messages[-1].role != "user" or not messages[-1].text.strip():
        raise InvalidArgumentError(
            "the last message must be the user's, with a text", pointer="messages"
        )
    if len(messages) == 1:
        return messages[0].text
    return "\n\n".join(f"{turn.role}: {turn.text}" for turn in in_hermes_form(messages))


@dataclass(frozen=True, slots=True)
class RefusedTeam:
    """The name of a team that cannot play requests, with the reason."""

    name: str
    reason: str
    agents: Sequence[str]

    def facts(self) -> dict[str, Any]:
        """Why."""
        return {"kind": "team", "agents": list(self.agents), "refused": self.reason}

    async def answer(self, asked: AskedChat, note: Note, *, timeout_s: float) -> ServedAnswer:
        """Always raises InvalidArgumentError."""
        raise InvalidArgumentError(
            f"the team '{self.name}' cannot play requests: {self.reason}. Its agents answer: "
            f"{', '.join(self.agents)}",
            pointer="model",
        )
