"""The discovery task as a task family: its parameters, its tasks and its demonstrations."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from troupe.data.prepared import SplitRows
from troupe.data.taskset import PreparedTaskset, row_of_key
from troupe.errors import InvalidArgumentError
from troupe.tasks.family import Split, Task, Taskset
from troupe.tasks.optional import Policy
from troupe.tasks.splits import DrawnTaskset, split_of_key
from troupe_tasks.discovery import compact, text
from troupe_tasks.discovery.environment import RETURN_BOUND, DiscoveryEnvironment, World
from troupe_tasks.discovery.formulas import (
    coefficients,
    parse,
    with_coefficients,
    written,
)
from troupe_tasks.discovery.judging import fitted
from troupe_tasks.discovery.laws import HIGH, INVENTED, LOW, Law, drawn_key, form_of, law
from troupe_tasks.discovery.state import DiscoveryState, decode_state
from troupe_tasks.discovery.tables import TableRow, table_of

_LEVELS = (0.0, 0.1, 0.25, 0.45, 0.7, 1.0)

ShapeName = Literal[
    "power", "power_of_three", "sum_of_powers", "two_terms", "saturation", "two_steps",
    "decay", "decay_of_three", "root", "logarithm", "wave", "valley",
]  # fmt: skip


class DiscoveryParams(BaseModel):
    """Which laws, and what measuring costs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: int = Field(default=0, description="Seed of the generator of laws.")
    shapes: tuple[ShapeName, ...] = Field(
        default=get_args(ShapeName), min_length=1, description="Shapes of laws."
    )
    readings: int = Field(default=12, ge=4, le=40, description="Readings of an episode.")
    noise: float = Field(default=0.01, ge=0.0, le=0.2, description="Relative noise of a reading.")
    names: Literal["invented", "plain"] = Field(
        default="invented", description="Names of the quantities: made-up words, or x, y, z."
    )
    theorist_measures: bool = Field(
        default=False, description="Lets the theorist measure too: for one that is alone."
    )
    data: Path | dict[Split, Path] | None = Field(
        default=None, description="Prepared tables instead of generated laws."
    )
    style: text.Style = Field(default="verbose", description="compact: one line; verbose: rules.")


class Discovery:
    """An experimenter measures a made-up world, a theorist names its law.

    Example: ``Discovery(DiscoveryParams(shapes=("power",))).taskset().task("train", 0)``.
    """

    name: ClassVar[str] = "discovery"
    agents: ClassVar[tuple[str, ...]] = text.AGENTS
    Params: ClassVar[type[BaseModel]] = DiscoveryParams
    local_terms: ClassVar[Mapping[str, Mapping[str, float]]] = {
        text.EXPERIMENTER: {"informs": 0.3},
        text.THEORIST: {"fits": 0.2},
    }
    return_bound: ClassVar[float] = RETURN_BOUND
    usual_workflow: ClassVar[Mapping[str, Any]] = {"order": list(agents), "max_turns": 4}

    def __init__(self, params: BaseModel) -> None:
        self._params = DiscoveryParams.model_validate(params.model_dump())
        data = self._params.data
        self._rows = None if data is None else SplitRows(data, TableRow)

    def taskset(self) -> Taskset:
        """The generated laws, or the prepared tables."""
        if self._rows is not None:
            return PreparedTaskset(self._rows, by_key=True)
        return DrawnTaskset(self.name, self._params.seed, self._draw, hint="allow more shapes")

    def environment(self) -> DiscoveryEnvironment:
        """The family's judge."""
        params = self._params
        return DiscoveryEnvironment(
            self._world,
            budget=params.readings,
            noise=params.noise,
            style=params.style,
            theorist_measures=params.theorist_measures,
        )

    def demonstrate(self, state: bytes, agent: str, rng: Random) -> str:
        """Points that tell the most; the law's form with coefficients fitted to the readings."""
        now = decode_state(state)
        found = self._world(now.key)
        is_compact = self._params.style == "compact"
        if agent == text.EXPERIMENTER:
            spread = compact.doubled(found.names) if is_compact and not now.readings else None
            return text.points_answer(spread or _spread(found, rng))
        readings = [(dict(zip(found.names, p, strict=True)), m) for p, m in now.readings]
        if found.formula is None:
            return text.formula_answer(f"{sum(m for _, m in readings) / max(1, len(readings)):.6g}")
        start = with_coefficients(found.formula, coefficients(found.formula))
        node = fitted(start, readings) if len(readings) > len(coefficients(start)) else start
        answer = text.formula_answer(compact.formula(node) if is_compact else written(node))
        if self._params.theorist_measures:
            return f"{text.points_answer(_spread(found, rng))}\n{answer}"
        return answer

    def random_action(self, state: bytes, agent: str, rng: Random) -> str:
        """Any points, or a power law with any exponents."""
        found = self._world(decode_state(state).key)
        if agent == text.EXPERIMENTER:
            points = [
                {name: round(rng.uniform(*span), 1) for name, span in found.ranges.items()}
                for _ in range(2)
            ]
            return text.points_answer(points)
        powers = [f"{name}**({rng.choice((-1, 0.5, 1, 2))})" for name in found.names]
        return text.formula_answer(f"{rng.uniform(0.5, 6):.1f}*{'*'.join(powers)}")

    def hidden_texts(self, task: Task) -> list[str]:
        """What no prompt may show: the law."""
        found = self._world(task.payload.decode())
        return [found.text] if found.formula is None else [found.text, written(found.formula)]

    def attackers(self) -> Mapping[str, Policy]:
        """The mean of the readings, a table of them, and a polynomial through them."""
        return {"mean": _mean, "table": _table, "polynomial": _polynomial}

    def vocabulary(self) -> Sequence[str]:
        """Signs, digits, functions and names."""
        names = INVENTED if self._params.names == "invented" else ("x", "y", "z")
        functions = ("sqrt", "exp", "log", "sin", "cos", "abs")
        words = ("formula:", "gives", "left", "tried", ";", *text.AGENTS)
        usual = [*words, *functions, *names, *"0123456789.()+-*/=", "**"]
        return (
            list(dict.fromkeys([*usual, *compact.vocabulary(names)]))
            if self._params.style == "compact"
            else usual
        )

    def _world(self, key: str) -> World:
        if self._rows is not None:
            return table_of(row_of_key(self._rows, key).model_dump_json())
        try:
            return law(key)
        except (ValueError, KeyError, AssertionError) as error:
            raise InvalidArgumentError(
                f"{key[:80]!r} is no law of this family; give all services one version and one "
                "'data'"
            ) from error

    def split_key(self, task: Task) -> str | None:
        """A law's shape and exponents."""
        return None if self._rows is not None else _owner(task.payload.decode())

    def _draw(self, rng: Random, split: Split) -> bytes | None:
        key = drawn_key(rng, self._params.shapes, self._params.names)
        return key.encode() if split_of_key(_owner(key)) == split else None


def _owner(key: str) -> str:
    return f"discovery/{form_of(key)}"


def _spread(found: World, rng: Random) -> list[dict[str, float]]:
    """Three points at different levels of each quantity."""
    rows: list[dict[str, float]] = [{}, {}, {}]
    for name, (low, high) in found.ranges.items():
        for row, level in zip(rows, rng.sample(_LEVELS, 3), strict=True):
            row[name] = low + level * (high - low)
    return rows


def _readings_of(state: bytes) -> tuple[Law, DiscoveryState]:
    now = decode_state(state)
    return law(now.key), now


def _measure(found: Law, rng: Random) -> str:
    points = [{n: round(rng.uniform(LOW, HIGH), 2) for n in found.names} for _ in range(3)]
    return text.points_answer(points)


def _mean(state: bytes, agent: str, rng: Random) -> str:
    found, now = _readings_of(state)
    if agent == text.EXPERIMENTER:
        return _measure(found, rng)
    values = [measured for _, measured in now.readings] or [1.0]
    return text.formula_answer(f"{sum(values) / len(values):.6g}")


def _table(state: bytes, agent: str, rng: Random) -> str:
    """A bump at each reading."""
    found, now = _readings_of(state)
    if agent == text.EXPERIMENTER:
        return _measure(found, rng)
    name = found.names[0]
    bumps = [f"{m:.3g}*exp(-9*({name}-{p[0]:g})**2)" for p, m in now.readings[:5]]
    return text.formula_answer("+".join(bumps) or "1")


def _polynomial(state: bytes, agent: str, rng: Random) -> str:
    """A quadratic in all quantities, fitted."""
    found, now = _readings_of(state)
    if agent == text.EXPERIMENTER:
        return _measure(found, rng)
    terms = [f"0.1*{n}" for n in found.names] + [f"0.1*{n}*{n}" for n in found.names]
    node = parse("1+" + "+".join(terms), found.names)
    assert node is not None
    readings = [(dict(zip(found.names, p, strict=True)), m) for p, m in now.readings]
    return text.formula_answer(written(fitted(node, readings) if readings else node))
