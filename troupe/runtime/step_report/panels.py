"""The page's charts, in order. A metric names the one that draws it in its `Curve`."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Panel:
    """One chart. ``hint`` explains it; ``keys`` is the order of a mapping's curves.

    An ``is_optional`` chart is shown only when something of it was measured.
    """

    id: str
    group: str
    title: str
    hint: str
    is_wide: bool = False
    is_stacked: bool = False
    is_optional: bool = False
    range: tuple[float, float] | None = None
    empty_text: str = "Nothing measured yet."
    keys: tuple[str, ...] = ()


PHASES = ("generate", "env", "learn", "evaluation", "publish", "checkpoint", "other")
"""The phases of a step, in order."""

_LEARNING = "Learning"
_STABILITY = "Stability"
_TIME = "Where the time goes"
_TRAINED = "What was trained"

PANELS = (
    Panel(
        "success",
        _LEARNING,
        "Success",
        "Share of episodes that solve the task. Evaluation is on tasks that are never trained on.",
        is_wide=True,
        range=(0, 1),
    ),
    Panel(
        "reward",
        _LEARNING,
        "Reward by agent",
        "Mean mixed reward of an agent's candidates.",
    ),
    Panel(
        "eval_reward",
        _LEARNING,
        "Reward of a held-out episode",
        "What an evaluation's episode brings each agent: the team's reward and its own terms.",
        is_optional=True,
    ),
    Panel(
        "spread",
        _LEARNING,
        "Reward and advantage spread",
        "Standard deviations. When both fall to 0 there is nothing left to learn from.",
    ),
    Panel(
        "parts",
        _LEARNING,
        "Reward by component",
        "Mean of each reward term, unweighted, before they are mixed.",
        is_wide=True,
    ),
    Panel(
        "diversity",
        _LEARNING,
        "Answer diversity",
        "Chance that an agent's answers to two different prompts differ: near 0 it answers "
        "everything alike. With a strict judge, how often it agrees with the reward.",
        range=(0, 1),
    ),
    Panel(
        "lengths",
        _LEARNING,
        "Completion length",
        "Mean tokens in a completion.",
    ),
    Panel(
        "turns",
        _LEARNING,
        "Turns and truncation",
        "Mean turns of an episode, and the share of completions that ran into the token limit.",
    ),
    Panel(
        "programs",
        _LEARNING,
        "Agent programs that failed",
        "Share of the programs that ended without an answer, by how. The event `program.failing` "
        "says what to do.",
        is_stacked=True,
        is_optional=True,
    ),
    Panel(
        "kl",
        _STABILITY,
        "KL divergence",
        "Between the rollout engine and the trainer on the same tokens, and to the "
        "reference where one is kept.",
    ),
    Panel(
        "entropy",
        _STABILITY,
        "Entropy",
        "Of the sampled tokens, in nats. A steep fall means that the policy stops exploring.",
    ),
    Panel(
        "coefficients",
        _STABILITY,
        "Coefficients that follow a target",
        "Weights of the KL term and of the entropy bonus, where a target is set.",
        is_optional=True,
    ),
    Panel(
        "clip",
        _STABILITY,
        "Clip fraction",
        "Share of tokens whose ratio was clipped. Up to 0.2 is usual; above 0.5 the "
        "learning rate is too high.",
    ),
    Panel(
        "grad",
        _STABILITY,
        "Gradient norm",
        "Before clipping, by policy where there are several.",
    ),
    Panel(
        "demonstrations",
        _STABILITY,
        "Demonstrations",
        "Mean cross-entropy of the tokens that are imitated beside what the groups teach.",
        is_optional=True,
    ),
    Panel(
        "value",
        _STABILITY,
        "Critic",
        "How much of the returns' variance the critic explains, and its loss.",
        is_optional=True,
    ),
    Panel(
        "phases",
        _TIME,
        "Step time by phase",
        "Wall time of each step, split over its phases.",
        is_stacked=True,
        is_wide=True,
        keys=PHASES,
    ),
    Panel(
        "tokens",
        _TIME,
        "Tokens per second",
        "Sampled tokens over the time in which something was generated, and trained tokens "
        "over the time of learning.",
    ),
    Panel(
        "tail",
        _TIME,
        "Tail of the round",
        "Time for which the step waited for its last draws, while at most an eighth of the most "
        "draws at once ran.",
        is_optional=True,
    ),
    Panel(
        "idle",
        _TIME,
        "Idle replicas",
        "Share of the time of drawing in which a replica drew nothing.",
        range=(0, 1),
        is_optional=True,
    ),
    Panel(
        "overlap",
        _TIME,
        "Trainer while the round is played",
        "Time for which it waited with nothing to learn from, and for which it learnt meanwhile.",
        is_optional=True,
    ),
    Panel(
        "push",
        _TIME,
        "New weights",
        "Time until every replica held and had checked the step's weights, and until all served "
        "them.",
        is_optional=True,
        is_stacked=True,
    ),
    Panel(
        "staleness",
        _TIME,
        "Staleness",
        "Versions between what sampled a token and what learnt from it. 0 is on-policy.",
    ),
    Panel(
        "groups",
        _TRAINED,
        "Groups",
        "Groups that were trained, and those whose candidates all had the same reward.",
        is_wide=True,
    ),
    Panel(
        "dropped",
        _TRAINED,
        "Dropped groups by reason",
        "Groups that were not learnt from, and why.",
        is_wide=True,
        is_stacked=True,
        empty_text="No group was dropped.",
    ),
)
