"""Draws tasks: first a question and its answer, evenly, then a plane that has this answer.

Question and answer are drawn once and never again, so in each split each answer of a question is
equally likely, exactly: whoever does not see the plane can only guess.
"""

from collections.abc import Sequence
from math import comb
from random import Random

from troupe.errors import InvalidArgumentError
from troupe.tasks.family import Split
from troupe.tasks.splits import split_of_key
from troupe_tasks.shapes.plane import (
    APPEARANCES,
    COLOURS,
    SHAPES,
    Appearance,
    PlacedShape,
    Plane,
    name,
)
from troupe_tasks.shapes.questions import (
    ANSWERS,
    EVERYWHERE,
    MAT,
    REGIONS,
    Kind,
    PlaneQuestion,
    true_answer,
)

MAX_PLANES = 1_000_000
"""Planes drawn for one task before its parameters count as unsatisfiable."""


def draw(
    rng: Random, split: Split, kinds: Sequence[Kind], size: int, num_shapes: int, max_alike: int
) -> tuple[PlaneQuestion, Plane]:
    """One task of ``split``."""
    question, answer = draw_question(rng, kinds)
    for _ in range(MAX_PLANES):
        plane = draw_plane(rng, size, _looks(rng, question, answer, num_shapes))
        is_right = true_answer(question, plane) == answer and is_told(plane, max_alike)
        if is_right and split_of(plane) == split:
            return question, plane
    raise InvalidArgumentError(
        f"No {split} plane with the answer {answer} to '{question.words}' occurred in {MAX_PLANES} "
        "draws; use fewer kinds, or a smaller size."
    )


def draw_question(rng: Random, kinds: Sequence[Kind]) -> tuple[PlaneQuestion, str]:
    """A question, and one of its kind's answers, all equally likely."""
    kind = rng.choice(kinds)
    reference = rng.choice(APPEARANCES)
    others = [look for look in APPEARANCES if look != reference]
    # Of another shape than the reference, which is alone: any colour may be the answer.
    target = Appearance(None, rng.choice([shape for shape in SHAPES if shape != reference.shape]))
    region = ""
    if kind == "side":
        target = rng.choice(others)
    elif kind == "count":
        colour = Appearance(rng.choice(COLOURS), None)
        target = rng.choice((target, colour, rng.choice(others)))
    if kind in ("count", "most"):
        region = rng.choice(REGIONS)
    is_named = region not in (MAT, EVERYWHERE)
    question = PlaneQuestion(kind, target, region, reference if is_named else None)
    return question, rng.choice(ANSWERS[kind])


def alone(question: PlaneQuestion) -> tuple[Appearance, ...]:
    """The looks that one shape alone must have."""
    named = (question.reference,) if question.reference else ()
    return (*named, question.target) if question.kind == "side" else named


def _looks(
    rng: Random, question: PlaneQuestion, answer: str, num_shapes: int
) -> Sequence[Appearance]:
    """Looks of any kind, but one each of ``alone``, and as many that are counted as the answer."""
    once = alone(question)
    looks = [look for look in APPEARANCES if look not in once]
    if question.kind != "count":
        return (*once, *rng.choices(looks, k=num_shapes - len(once)))
    counted = rng.choices([look for look in looks if question.target.fits(look)], k=int(answer))
    if question.region == EVERYWHERE:
        looks = [look for look in looks if not question.target.fits(look)]
    return (*once, *counted, *rng.choices(looks, k=num_shapes - len(once) - len(counted)))


def likelihood(question: PlaneQuestion, answer: str, plane: Plane) -> int:
    """How likely ``plane``, which has this answer, is drawn for it, against one of even looks.

    Shapes to be counted are drawn first, and any that look so may be these.
    """
    if question.kind != "count":
        return 1
    alike = [p for p in plane.all_of(question.target) if Appearance(*p[:2]) != question.reference]
    return comb(len(alike), int(answer))


def draw_plane(rng: Random, size: int, looks: Sequence[Appearance]) -> Plane:
    """Shapes of these looks at different places, and a mat."""
    places = [divmod(number, size) for number in rng.sample(range(size * size), len(looks))]
    shapes = sorted(zip(places, looks, strict=True))
    rows, columns = (sorted(rng.sample(range(size), 2)) for _ in range(2))
    mat = ((rows[0], columns[0]), (rows[1], columns[1]))
    return Plane(size, tuple(PlacedShape(*look, place) for place, look in shapes), mat)  # pyright: ignore[reportArgumentType]


def is_told(plane: Plane, max_alike: int) -> bool:
    """Whether a message holds all shapes of any one colour, and of any one shape."""
    looks = (
        *(Appearance(colour, None) for colour in COLOURS),
        *(Appearance(None, shape) for shape in SHAPES),
    )
    return all(len(plane.all_of(look)) <= max_alike for look in looks)


def split_of(plane: Plane) -> Split:
    """The one split that owns all questions of this plane, however turned or mirrored it is."""
    return split_of_key(split_key(plane))


def split_key(plane: Plane) -> str:
    """One text for a plane, however turned or mirrored."""
    return min(_key(plane, turn) for turn in range(8))


def _key(plane: Plane, turn: int) -> str:
    last = plane.size - 1

    def turned(place: tuple[int, int]) -> tuple[int, int]:
        row, column = place[::-1] if turn & 4 else place
        return last - row if turn & 2 else row, last - column if turn & 1 else column

    shapes = sorted(f"{name(turned(p.place))} {p.colour} {p.shape}" for p in plane.shapes)
    corners = [turned(corner) for corner in plane.mat]
    rows, columns = (sorted(corner[axis] for corner in corners) for axis in (0, 1))
    return f"shapes/{plane.size}/{rows}{columns}/{shapes}"
