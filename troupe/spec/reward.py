"""The reward: what counts of the task's terms and the team's, a function's term, a second judge."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from troupe.spec.base import MAX_NAMED, PluginParams, SpecModel, is_empty


def _function_alone(value: Any) -> Any:
    """``reward: my_rewards:fluency`` names a function and changes nothing else."""
    return {"kind": value} if isinstance(value, str) else value


class StrictRewardSpec(SpecModel):
    """A stricter second judge: a reward function that is recorded and never paid.

    A text in the place of these fields is its `kind`.
    """

    kind: str
    """Reward function: registered name (`troupe.rewards`), `module:attr` or `file.py:attr`."""
    params: PluginParams = Field(default_factory=dict, exclude_if=is_empty)
    """Its parameters."""
    fraction: float = Field(default=1.0, gt=0.0, le=1.0)
    """Share of the actions that it judges, drawn by a digest of state and action."""


StrictRewardPart = Annotated[
    StrictRewardSpec,
    BeforeValidator(_function_alone, json_schema_input_type=str | StrictRewardSpec),
]


class RewardSpec(SpecModel):
    """reward = alpha * team + sum of weight * local term (arXiv 2510.11062, Eq. 3).

    With `kind` a function adds a term of its own (docs/writing-a-reward.md). A text in the place of
    these fields is its `kind`: `reward: my_rewards:fluency`.
    """

    alpha: float = Field(default=1.0, ge=0.0)
    """Weight of the team reward."""
    weights: dict[str, dict[str, float]] = Field(default_factory=dict, max_length=MAX_NAMED)
    """agent -> term -> weight; terms that are left out keep the task's default weight."""
    kind: str = Field(default="", exclude_if=is_empty)
    """Reward function: registered name (`troupe.rewards`), `module:attr` or `file.py:attr`."""
    name: str = Field(default="", max_length=40, pattern=r"^\w*$", exclude_if=is_empty)
    """Name of the function's term in records and metrics; the last part of `kind` when left out."""
    params: PluginParams = Field(default_factory=dict, exclude_if=is_empty)
    """Parameters of the function, checked by its model `Params` or its keyword-only arguments."""
    weight: float = Field(default=1.0, exclude_if=lambda weight: weight == 1.0)
    """Weight of the function's term for every agent; `weights` may set another for one agent."""
    mode: Literal["add", "replace"] = Field(default="add", exclude_if=lambda mode: mode == "add")
    """add: the term counts beside the team reward and the task's terms; replace: these are recorded
    and do not count, except terms that `weights` names."""
    strict: StrictRewardPart | None = Field(default=None, exclude_if=lambda strict: strict is None)
    """Second judge whose term `strict` weighs nothing; `monitor` compares it with the reward."""

    @property
    def team_weight(self) -> float:
        """What the team reward counts."""
        return 0.0 if self.mode == "replace" else self.alpha

    @property
    def term(self) -> str:
        """Name of the function's term; "" without a function."""
        return self.name or self.kind.rpartition(":")[2].rpartition(".")[2]


RewardPart = Annotated[
    RewardSpec, BeforeValidator(_function_alone, json_schema_input_type=str | RewardSpec)
]
