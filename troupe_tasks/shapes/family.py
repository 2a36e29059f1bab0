"""Shapes as a task family: its parameters, its tasks and its demonstrations."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, ClassVar, Self

from pydantic import BaseModel, Field, model_validator

from troupe.tasks.family import HiddenTexts, Split, Task
from troupe.tasks.splits import DrawnTaskset
from troupe_tasks.drawing import ObserveParams
from troupe_tasks.shapes import script, text
from troupe_tasks.shapes import state as states
from troupe_tasks.shapes.environment import RETURN_BOUND, ShapesEnvironment
from troupe_tasks.shapes.generator import draw, split_key
from troupe_tasks.shapes.plane import COLOURS, SHAPES, name
from troupe_tasks.shapes.questions import ANSWERS, KINDS, MAT, Kind, true_answer

_TERMS: Mapping[str, Mapping[str, float]] = {
    text.ANSWERER: {"format": 0.1, "ask": 0.4},
    text.SEER: {"truth": 0.5},
}


class ShapesParams(ObserveParams):
    """What kind of planes and questions, who sees, and how much may be said."""

    seed: int = Field(default=0, description="Seed of the task generator.")
    size: int = Field(default=5, ge=3, le=9, description="Places per side of the square plane.")
    num_shapes: int = Field(default=7, ge=5, le=24, description="Shapes on the plane.")
    kinds: tuple[Kind, ...] = Field(
        default=KINDS, min_length=1, description="Kinds of questions, each equally often."
    )
    message_words: int = Field(
        default=8,
        ge=6,
        le=32,
        description="Words of one message that reach the answerer; planes have at most half as "
        "many shapes of one colour, and of one shape.",
    )
    style: text.Style = Field(
        default="compact", description="compact: one line; verbose: with rules."
    )
    is_solo: bool = Field(
        default=False, description="One viewer sees the plane and knows the question."
    )

    @property
    def max_alike(self) -> int:
        """Shapes of one colour, or of one shape, at most."""
        return self.message_words // 2

    @model_validator(mode="after")
    def _can_be_drawn(self) -> Self:
        most = min(self.size**2 * 2 // 3, len(SHAPES) * self.max_alike - 2)
        if self.num_shapes > most:
            raise ValueError(
                f"num_shapes must be at most {most} with size {self.size} and message_words "
                f"{self.message_words}, got {self.num_shapes}"
            )
        # Three of a colour beside one more of it; none of a shape, so all are of the other two.
        words = max(8, self.num_shapes + self.num_shapes % 2)
        if "count" in self.kinds and self.message_words < words:
            raise ValueError(
                f"questions of kind 'count' about {self.num_shapes} shapes need message_words of "
                f"at least {words}, got {self.message_words}; raise it, or leave 'count' out of "
                "kinds"
            )
        return self


class Shapes:
    """The answerer knows a question about a plane, the seer sees the plane: neither can do without.

    Each turn the answerer asks for places in two words, or answers; then the seer sends a bounded
    message.

    Example: ``Shapes(ShapesParams(observe="image")).taskset().task("train", 0)``.
    """

    name: ClassVar[str] = "shapes"
    agents: ClassVar[tuple[str, ...]] = text.AGENTS
    Params: ClassVar[type[BaseModel]] = ShapesParams
    local_terms: ClassVar[Mapping[str, Mapping[str, float]]] = _TERMS
    return_bound: ClassVar[float] = RETURN_BOUND
    usual_workflow: ClassVar[Mapping[str, Any]] = {"order": list(agents), "max_turns": 3}

    def __init__(self, params: BaseModel) -> None:
        self._params = ShapesParams.model_validate(params.model_dump())
        if self._params.is_solo:
            # What an instance declares hides the class's.
            vars(self).update(
                agents=(text.VIEWER,),
                local_terms={text.VIEWER: {"format": 0.1}},
                usual_workflow={"order": [text.VIEWER], "max_turns": 1},
            )

    def taskset(self) -> DrawnTaskset:
        """The family's tasks."""
        return DrawnTaskset(self.name, self._params.seed, self._draw, hint="use a larger size")

    def environment(self) -> ShapesEnvironment:
        """The family's judge."""
        params = self._params
        return ShapesEnvironment(
            self.agents, params.style, params.message_words, params.image_cell_px
        )

    def demonstrate(self, state: bytes, agent: str, rng: Random) -> str:
        """The truth of the seer; the answerer's line from the question and what it heard alone."""
        now = states.decode_state(state)
        if agent == text.SEER:
            return script.seer_line(now)
        if agent == text.VIEWER:
            return f"{text.ANSWER} {true_answer(now.question, now.plane)}"
        return script.answerer_line(now, rng)

    def random_action(self, state: bytes, agent: str, rng: Random) -> str:
        """A message of any places; any ask, or any answer to any kind of question."""
        if agent == text.SEER:
            size = self._params.size
            places = [name((rng.randrange(size), rng.randrange(size))) for _ in range(3)]
            return " ".join(places[: rng.randint(1, 3)])
        if agent == text.ANSWERER and rng.random() < 0.5:
            return rng.choice((*COLOURS, *SHAPES, MAT))
        answers = [word for words in ANSWERS.values() for word in words]
        return f"{text.ANSWER} {rng.choice(answers)}"

    def vocabulary(self) -> Sequence[str]:
        """Every word of the compact style."""
        return text.vocabulary(self._params.size)

    def hidden_texts(self, task: Task) -> HiddenTexts:
        """The question from the seer; the plane in words from who must see it, or is told of it."""
        first = states.first_state(task.payload)
        question = [first.question.words, first.question.sentence, "heard"]
        plane = text.plane_words(first.plane)
        shown = [plane, plane.partition(f" {MAT}")[0]]
        seen = shown if self._params.observe == "image" else []
        if self._params.is_solo:
            return {text.VIEWER: seen}
        return {text.SEER: [*question, *seen], text.ANSWERER: shown}

    def split_key(self, task: Task) -> str:
        """The plane, whatever the question, however turned or mirrored."""
        return split_key(states.first_state(task.payload).plane)

    def _draw(self, rng: Random, split: Split) -> bytes:
        params = self._params
        task = draw(rng, split, params.kinds, params.size, params.num_shapes, params.max_alike)
        return states.encode_task(*task)
